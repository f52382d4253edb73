"""Every promise of the gateway as data: its id, its sentence, where it was made, and what proves
it.

A proof is a test, `path::name`; a benchmark that prints the figure, `benchmarks/name.py`; or the
run of everything,
`.ci/run`. `test_promises` fails the build when a promise has no proof, or names one that does not exist.
"""

from dataclasses import dataclass

HOUSE = "issue 2, A gateway that works end to end"
SEARCH = "issue 3, Search that finds the tool"
SHOWN = "issue 4, What to show"


@dataclass(frozen=True)
class Promise:
    """One thing that users may rely on."""

    id: str
    sentence: str
    source: str
    proofs: tuple[str, ...]


def promises(
    source: str, *rows: tuple[str, str, tuple[str, ...]], issue: str = HOUSE
) -> tuple[Promise, ...]:
    """Promises that one part of an issue made."""
    return tuple(
        Promise(id, sentence, f"{issue}: {source}", proofs) for id, sentence, proofs in rows
    )


MATRIX = "tests/interaction/test_matrix.py"
RAW = "tests/interaction/test_raw_layer.py"
EXPOSURES = "tests/interaction/test_exposures.py"
PROFILES = "tests/interaction/test_profiles.py"
TRANSPARENT = "tests/interaction/test_transparency.py"
NAMESPACES = "tests/interaction/test_namespaces.py"
ANNOUNCED = "tests/interaction/test_announcements.py"
RELAYED = "tests/interaction/test_relayed_requests.py"
MALFORMED = "tests/interaction/test_malformed_tools.py"
SECURITY = "tests/server/test_http_security.py"
SESSIONS = "tests/server/test_sessions.py"
DOOR_STDIO = "tests/server/test_stdio.py"
CONFIG, CONFIG_FILE = "tests/test_config.py", "tests/test_config_file.py"
STDIO, PROCESS = "tests/upstream/test_stdio.py", "tests/upstream/test_process.py"
SUPERVISOR = "tests/upstream/test_supervisor.py"
HTTP, FAULTS = "tests/upstream/test_http.py", "tests/upstream/test_http_faults.py"
SYNC, ADDRESS = "tests/catalog/test_sync.py", "tests/catalog/test_address.py"
DISCOVERY, VIEW = "tests/disclosure/test_discovery.py", "tests/disclosure/test_view.py"
INDEX = "tests/search/test_index.py"
FLEET = "tests/fleet/test_fleet_rendering.py"
KIT = "tests/test_kit.py"
HYBRID, REPLACING = "tests/search/test_hybrid.py", "tests/search/test_replacing.py"
EVERYDAY, PACKAGE = "tests/search/test_everyday_queries.py", "tests/test_package.py"
ENCODER, MEANINGS = "tests/search/dense/test_encoder.py", "tests/catalog/test_meanings.py"
WORDPIECE = "tests/search/dense/test_wordpiece.py"
RESULTS, EXPLAIN = "tests/disclosure/test_results.py", "tests/disclosure/test_explain.py"
SEARCHING, LEARNING = "tests/interaction/test_searching.py", "tests/interaction/test_learning.py"
HABITS, LEARNER = "tests/search/test_habits.py", "tests/learning/test_learner.py"
KEPT_HABITS, KEPT_VECTORS = "tests/storage/test_habits.py", "tests/storage/test_vector_file.py"
CLI_SEARCH, FORGETTING = "tests/cli/test_search.py", "tests/cli/test_forgetting.py"
DESCRIBING, CATEGORIES = "tests/disclosure/test_describing.py", "tests/catalog/test_categories.py"
RECORD, OPENING = "tests/storage/test_record.py", "tests/storage/test_record_opening.py"
RECORD_PG, KILLED = "tests/storage/test_record_postgres.py", "tests/lifetime/test_killed_record.py"
USAGE, KEEPER, LEDGER = (
    f"tests/observability/test_{name}.py" for name in ("usage", "keeper", "ledger")
)
STATISTICS, KILLING = (
    "tests/observability/test_statistics.py",
    "tests/observability/test_killing.py",
)
TWO_GATEWAYS, STANDINGS = (
    "tests/interaction/test_two_gateways.py",
    "tests/disclosure/test_standings.py",
)
RESOURCES, PROMPTS = "tests/interaction/test_resources.py", "tests/interaction/test_prompts.py"
OWN_RESOURCES, COMPLETION = (
    "tests/disclosure/test_resources.py",
    "tests/disclosure/test_completion.py",
)
API_TIERS, API_BODIES = "tests/api/test_tiers.py", "tests/api/test_bodies.py"
API_SEARCH, API_HOUSE = "tests/api/test_search.py", "tests/api/test_house.py"
API_PROBLEMS, API_FUZZ = "tests/api/test_problems.py", "tests/api/test_fuzz.py"
CLI_TOKENS, CLI_TIERS, CLI_USAGE = (
    f"tests/cli/test_{name}.py" for name in ("tokens", "tiers", "usage")
)
ROWS_DISCOVERY, ROWS_USAGE = "tests/seeds/test_discovery_rows.py", "tests/seeds/test_usage_rows.py"
ROWS_REST, ROWS_CLI = "tests/seeds/test_rest_rows.py", "tests/seeds/test_cli_rows.py"
ROWS_DOING, ROWS_FLOW = "tests/seeds/test_doing_rows.py", "tests/seeds/test_flow_rows.py"
FLEET_CATALOG, METATOOLS = "tests/fleet/test_fleet_catalog.py", "tests/disclosure/test_metatools.py"
RETRIEVAL, TOOL_SETS = "tests/benchmarks/test_retrieval.py", "tests/benchmarks/test_tool_sets.py"

PROJECT = promises(
    "the project",
    (
        "project.demo",
        "`pip install . && portico demo` works on a machine with Python and pip alone.",
        ("tests/cli/test_demo.py::test_the_walk_shows_every_step_and_its_cost",),
    ),
    (
        "project.checks",
        "Install, style, types, import contracts, conformance, real servers, benchmarks and tests run in one command.",
        (".ci/run",),
    ),
    (
        "project.promises",
        "Every promise has a test, and the build fails when one has not.",
        ("tests/test_promises.py::test_every_promise_has_a_proof_that_exists",),
    ),
)

CONFIGURATION = promises(
    "config",
    (
        "config.clients",
        "Any client's `mcpServers` JSON is a configuration as it is, VS Code's `servers` key too.",
        (
            "tests/test_config_clients.py::test_claude_desktop",
            "tests/test_config_clients.py::test_claude_code_user_file_with_dozens_of_other_keys",
            "tests/test_config_clients.py::test_vs_code_with_comments_tabs_trailing_commas_and_inputs",
            "tests/test_config_clients.py::test_vs_code_user_settings",
        ),
    ),
    (
        "config.kinds",
        "stdio, Streamable HTTP and legacy SSE backends are told apart by what is given.",
        (f"{CONFIG}::test_the_kind_of_a_server_follows_from_what_is_given",),
    ),
    (
        "config.expansion",
        "`${VAR}` and `${VAR:-default}` expand.",
        (
            f"{CONFIG_FILE}::test_placeholders_are_filled_in",
            f"{CONFIG_FILE}::test_a_missing_variable_costs_its_server_and_no_other",
        ),
    ),
    (
        "config.rules",
        "Tools can be allowed, denied and renamed.",
        (
            f"{SYNC}::test_only_allowed_tools_that_are_not_denied_exist",
            f"{SYNC}::test_a_renamed_tool_has_its_new_name_and_is_called_by_the_old",
            f"{TRANSPARENT}::test_a_tool_that_is_denied_cannot_be_called_by_its_name",
            f"{TRANSPARENT}::test_a_tool_that_is_renamed_is_listed_and_called_by_its_new_name",
        ),
    ),
    (
        "config.timeouts",
        "Each server has its own timeouts.",
        (
            "tests/execution/test_call.py::test_a_server_that_does_not_answer_is_given_up_after_its_time",
            f"{SUPERVISOR}::test_a_server_that_never_answers_is_unavailable_when_its_time_is_up",
        ),
    ),
    (
        "config.isolation",
        "With `isolation: session` each client session has its own instance, which ends with it.",
        (
            f"{SESSIONS}::test_each_session_has_its_own_instance_of_an_isolated_server",
            f"{SUPERVISOR}::test_each_session_of_an_isolated_server_has_its_own_process_until_it_ends",
        ),
    ),
    (
        "config.unknown-key",
        "An unknown key is an error with file, line and nearest key.",
        (f"{CONFIG_FILE}::test_an_unknown_key_gets_its_file_its_line_and_the_nearest_key",),
    ),
    (
        "config.precedence",
        "A flag wins over the environment, that over the file, and that over the default.",
        (
            f"{CONFIG_FILE}::test_a_flag_wins_over_the_environment_and_that_over_the_file_and_that_over_the_default",
        ),
    ),
    (
        "config.printed",
        "`portico config` prints the effective configuration with secrets masked.",
        (
            "tests/cli/test_config_and_status.py::test_no_secret_is_ever_shown",
            "tests/test_config_masking.py::test_no_secret_is_anywhere_in_the_output",
        ),
    ),
)

UPSTREAM = promises(
    "upstream",
    (
        "upstream.group",
        "A stdio server runs in its own process group, and nothing of the group outlives it.",
        (
            f"{PROCESS}::test_a_server_leads_a_group_of_its_own",
            f"{PROCESS}::test_the_children_a_server_leaves_behind_go_with_it",
        ),
    ),
    (
        "upstream.environment",
        "A stdio server's environment is scrubbed.",
        (
            f"{PROCESS}::test_only_harmless_variables_are_inherited",
            f"{STDIO}::test_a_server_sees_what_its_configuration_gives_it_and_no_secret_of_ours",
        ),
    ),
    (
        "upstream.stderr",
        "What a server writes to stderr blocks nothing; its last lines are kept.",
        (f"{STDIO}::test_a_flood_on_stderr_blocks_nothing_and_keeps_only_the_last_lines",),
    ),
    (
        "upstream.noise",
        "Noise on stdout is tolerated and counted.",
        (f"{STDIO}::test_noise_on_stdout_is_passed_over_and_counted",),
    ),
    (
        "upstream.stop",
        "A server is asked to leave, then SIGTERM, then SIGKILL to its group.",
        (
            f"{PROCESS}::test_a_server_is_asked_then_told_then_killed",
            f"{PROCESS}::test_a_child_that_ignores_sigterm_goes_too",
        ),
    ),
    (
        "upstream.guard",
        "A server dies with the gateway even if that is SIGKILLed.",
        (
            f"{PROCESS}::test_when_its_gateway_is_killed_the_guard_ends_every_group_and_then_itself",
            "tests/lifetime/test_endings.py::test_no_process_outlives_a_gateway_on_stdio",
        ),
    ),
    (
        "upstream.http",
        "HTTP servers are reached over pooled connections, in both eras.",
        (
            f"{HTTP}::test_it_lists_and_calls",
            "tests/upstream/test_wire.py::test_one_connection_serves_one_request_after_the_other",
        ),
    ),
    (
        "upstream.sse",
        "Servers of the old event-stream transport work.",
        ("tests/upstream/test_sse.py::test_it_lists_calls_relays_and_cancels",),
    ),
    (
        "upstream.functions",
        "Python callables are a server, in this process.",
        (
            "tests/upstream/test_functions.py::test_a_server_of_functions_introduces_itself_and_lists_them",
            "tests/demo/test_servers.py::test_calls_answer_structured",
        ),
    ),
    (
        "upstream.recorded",
        "A recording can be searched and described; calls answer that it is recorded only.",
        (
            "tests/upstream/test_recorded.py::test_one_line_of_a_file_is_a_server",
            "tests/upstream/test_recorded.py::test_calls_say_that_this_is_a_recording_and_what_to_do",
            f"{VIEW}::test_a_recording_can_be_read_and_not_called",
        ),
    ),
    (
        "upstream.era",
        "The era of a server is found out, also of one that dies on or ignores `server/discover`.",
        (
            f"{STDIO}::test_each_server_is_met_in_its_era_with_one_process",
            f"{STDIO}::test_a_server_that_the_probe_spoils_is_started_again_without_one",
            f"{STDIO}::test_a_server_that_ignores_the_probe_gets_the_handshake_behind_it",
            f"{FAULTS}::test_a_server_that_refuses_the_probe_is_met_with_the_handshake",
        ),
    ),
    (
        "upstream.era-remembered",
        "The era of a server is remembered.",
        (
            f"{SUPERVISOR}::test_an_era_is_remembered_across_gateways",
            f"{STDIO}::test_a_remembered_era_spares_the_probe",
        ),
    ),
)

RAW_LAYER = promises(
    "the raw layer",
    (
        "raw.definitions",
        "Unknown fields, `_meta`, annotations and icons of a tool arrive unchanged at the client.",
        (
            f"{RAW}::test_a_definition_is_listed_as_it_was_given_but_for_its_name",
            f"{MALFORMED}::test_what_a_strict_client_takes_is_not_touched",
        ),
    ),
    (
        "raw.results",
        "Results arrive unchanged: structuredContent of any kind, unknown content types, integers of any size.",
        (
            f"{RAW}::test_a_result_arrives_unchanged",
            f"{RAW}::test_arguments_reach_the_server_unchanged",
            f"{STDIO}::test_numbers_of_any_size_pass_both_ways",
        ),
    ),
    (
        "raw.errors",
        "Error codes, messages and data arrive unchanged, null and falsy too; from `call_tool` in a result's `_meta`.",
        (
            f"{RAW}::test_an_error_arrives_unchanged",
            f"{MATRIX}::test_a_protocol_error_keeps_code_message_and_data",
        ),
    ),
    (
        "raw.envelope",
        "Each era gets around a result what it asks for, and nothing it does not know.",
        (
            f"{RAW}::test_a_listing_wears_what_its_era_knows_and_no_more",
            "tests/server/test_envelope.py::test_a_result_for_the_handshake_era_wears_nothing_modern",
        ),
    ),
    (
        "raw.salvage",
        "Malformed tools are salvaged one by one, and strict clients can list the rest.",
        (
            f"{MALFORMED}::test_a_strict_client_lists_and_calls_what_could_be_saved",
            f"{MALFORMED}::test_one_wrong_field_does_not_cost_a_strict_client_the_list",
            "tests/catalog/test_listing.py::test_what_has_no_name_is_left_out_with_a_warning",
        ),
    ),
)

CATALOG = promises(
    "catalog",
    (
        "catalog.addresses",
        "A tool is found by `server.tool`, its identifier, other separators and its bare name; a wrong name gets the "
        "nearest back.",
        (
            f"{ADDRESS}::test_every_usual_spelling_means_the_tool",
            f"{ADDRESS}::test_identifiers_and_bare_names_mean_the_tool",
            f"{ADDRESS}::test_a_wrong_name_gets_the_nearest_names_back",
        ),
    ),
    (
        "catalog.snapshot",
        "One snapshot is replaced whole: a query sees one moment.",
        (f"{SYNC}::test_a_query_that_runs_while_the_snapshot_is_replaced_sees_one_moment",),
    ),
    (
        "catalog.relist",
        "A server is listed again on `list_changed`, on reconnect and when its listing is old.",
        (
            f"{SYNC}::test_an_announced_change_is_one_listing_and_one_event",
            f"{SYNC}::test_a_server_that_comes_back_is_listed_again",
            f"{SYNC}::test_a_listing_that_has_grown_old_is_asked_for_again",
            f"{ANNOUNCED}::test_a_real_server_that_grows_is_listed_again",
        ),
    ),
    (
        "catalog.manifest",
        "Everything but calls works before any backend has started.",
        (f"{SYNC}::test_a_second_gateway_answers_everything_but_calls_with_no_server_started",),
    ),
    (
        "catalog.lazy",
        "A backend starts on its first call, once however many call.",
        (
            f"{SUPERVISOR}::test_twenty_first_calls_at_once_start_one_process",
            f"{SYNC}::test_the_first_call_starts_a_remembered_server_and_lists_it_anew",
        ),
    ),
    (
        "catalog.parallel",
        "Starts run in parallel, so many at a time and no more.",
        (f"{SUPERVISOR}::test_only_so_many_servers_start_at_the_same_time",),
    ),
    (
        "catalog.states",
        "A server is configured, known, starting, ready, degraded or down, and says why.",
        (f"{SUPERVISOR}::test_states_follow_a_servers_life_and_say_why",),
    ),
)

DOOR = promises(
    "the door",
    (
        "door.eras",
        "stdio and Streamable HTTP serve both eras on one server core.",
        (
            f"{MATRIX}::test_a_call_answers_what_the_upstream_answered",
            f"{DOOR_STDIO}::test_every_handshake_version_is_spoken",
        ),
    ),
    (
        "door.stable",
        "`tools/list` is byte-identical across calls, sessions and restarts, and whatever comes and goes behind it.",
        (
            f"{EXPOSURES}::test_the_meta_tools_are_the_same_bytes_at_every_call_session_and_restart",
            f"{EXPOSURES}::test_the_meta_tools_are_the_same_bytes_while_backends_come_and_go",
            f"{EXPOSURES}::test_the_full_list_has_one_order_whichever_server_is_heard_first",
        ),
    ),
    (
        "door.instructions",
        "The instructions say that the list is partial and how to search, in less than 2 KB.",
        (f"{EXPOSURES}::test_the_instructions_say_first_that_the_list_is_partial",),
    ),
    (
        "door.exposures",
        "`meta`, `full` and `code` show what their names say.",
        (
            f"{EXPOSURES}::test_the_meta_tools_are_the_same_bytes_at_every_call_session_and_restart",
            f"{EXPOSURES}::test_full_shows_every_tool_and_no_meta_tool",
            f"{EXPOSURES}::test_code_shows_search_describe_and_scripts_only",
            f"{EXPOSURES}::test_names_in_full_are_legal_and_short_and_still_reach_their_tool",
        ),
    ),
    (
        "door.profiles",
        "A profile has its own URL, and what is outside it is not found there by any way.",
        (
            f"{PROFILES}::test_each_profile_answers_at_its_own_url",
            f"{PROFILES}::test_search_never_finds_what_is_outside",
            f"{PROFILES}::test_the_exact_name_of_what_is_outside_is_not_found",
            f"{PROFILES}::test_browsing_a_server_outside_is_not_found",
            f"{PROFILES}::test_resources_and_prompts_outside_are_not_found",
        ),
    ),
    (
        "door.switches",
        "Each meta-tool can be switched off; only tools that work are listed.",
        (f"{EXPOSURES}::test_a_meta_tool_that_is_switched_off_is_neither_listed_nor_callable",),
    ),
    (
        "door.namespaces",
        "Upstream resources, templates, prompts and completion are proxied and namespaced.",
        (
            f"{NAMESPACES}::test_resources_are_listed_under_their_server_with_every_field",
            f"{NAMESPACES}::test_a_resource_is_read_by_its_outer_uri_and_answers_under_it",
            f"{NAMESPACES}::test_prompts_of_the_same_name_are_told_apart",
            f"{NAMESPACES}::test_completion_reaches_the_server_under_its_own_names",
            f"{MATRIX}::test_resources_prompts_and_completion_reach_the_upstream",
        ),
    ),
    (
        "door.not-found",
        "An unknown URI has the code of the client's era.",
        (f"{NAMESPACES}::test_an_unknown_uri_has_the_code_of_the_clients_era",),
    ),
    (
        "door.transparent",
        "A single un-prefixed backend in `full` is fully transparent.",
        (
            f"{TRANSPARENT}::test_the_real_thing_looks_the_same_directly_and_through_us",
            f"{TRANSPARENT}::test_names_pass_as_they_are_listed_and_called",
            f"{TRANSPARENT}::test_a_method_nobody_knows_is_forwarded_with_everything_in_it",
        ),
    ),
    (
        "door.announcements",
        "List changes and updated resources reach those who asked, debounced.",
        (
            f"{ANNOUNCED}::test_a_changed_list_reaches_clients_of_both_eras",
            f"{ANNOUNCED}::test_a_burst_of_changes_is_few_notifications_and_few_listings",
            f"{ANNOUNCED}::test_an_updated_resource_is_told_to_its_subscriber_alone",
        ),
    ),
    (
        "door.relays",
        "What a handshake-era server asks is asked of the client that called, or refused in words.",
        (
            f"{RELAYED}::test_the_client_that_called_is_asked_and_its_answer_reaches_the_server",
            f"{RELAYED}::test_a_client_that_cannot_be_asked_is_named_as_the_reason",
        ),
    ),
    (
        "door.origin",
        "Host and Origin are checked.",
        (
            f"{SECURITY}::test_a_strange_host_is_misdirected",
            f"{SECURITY}::test_a_strange_origin_is_forbidden",
        ),
    ),
    (
        "door.loopback",
        "Loopback by default; any other host is refused without a bearer token.",
        (
            f"{SECURITY}::test_listening_beyond_this_machine_needs_a_token",
            f"{SECURITY}::test_without_the_token_nobody_comes_in",
            "tests/cli/test_serve.py::test_listening_beyond_this_machine_without_a_token_is_refused",
        ),
    ),
    (
        "door.token",
        "The token is in no answer and in no log.",
        (f"{SECURITY}::test_the_token_is_in_no_answer_and_in_no_log",),
    ),
    (
        "door.sessions",
        "No client reads what another one's session was told.",
        (f"{SESSIONS}::test_no_session_is_resumed_from_another_ones_events",),
    ),
    (
        "door.nonsense",
        "Nonsense is refused with a typed error, and the door stays open.",
        (
            f"{SECURITY}::test_nonsense_is_refused_and_the_door_stays_open",
            f"{SECURITY}::test_a_request_that_is_too_large_is_refused_before_it_is_read",
            f"{DOOR_STDIO}::test_a_line_that_is_no_message_is_answered",
        ),
    ),
)

META_TOOLS = promises(
    "meta-tools",
    (
        "meta.search",
        "`search_tools` ranks by identifier-aware fielded BM25.",
        (
            f"{INDEX}::test_an_exact_address_always_ranks_first",
            f"{INDEX}::test_words_in_any_order_and_inflection_find_a_tool",
            "tests/search/test_tokens.py::test_an_identifier_gives_the_same_terms_however_it_is_spelt",
            "tests/search/test_fleet.py::test_people_s_questions_find_a_right_tool_among_the_first_ten",
            f"{DISCOVERY}::test_matches_come_best_first_one_line_each_with_what_to_do_next",
        ),
    ),
    (
        "meta.browse",
        "`browse_tools` shows every server, and every tool of one, paged.",
        (
            f"{DISCOVERY}::test_the_overview_has_every_server_with_its_state",
            f"{DISCOVERY}::test_cursors_lead_through_all_tools_of_a_server_exactly_once",
        ),
    ),
    (
        "meta.describe",
        "`describe_tools` shows one to ten tools as brief, schema or full.",
        (
            f"{DESCRIBING}::test_each_name_is_described_at_the_level_asked_for",
            f"{DESCRIBING}::test_a_wrong_name_costs_only_itself",
        ),
    ),
    (
        "meta.call",
        "`call_tool` checks arguments first and answers mistakes with advice.",
        (
            f"{VIEW}::test_wrong_arguments_are_answered_with_where_why_and_the_parameters",
            f"{EXPOSURES}::test_bad_arguments_are_answered_with_the_problem_and_the_parameters",
            "tests/execution/test_validation.py::test_a_problem_names_where_and_why",
        ),
    ),
    (
        "meta.budgets",
        "Every answer fits its token budget and says how to get the rest.",
        (
            f"{DISCOVERY}::test_no_answer_of_more_than_one_entry_is_over_its_budget",
            f"{DESCRIBING}::test_what_does_not_fit_is_named_and_can_be_asked_for",
            f"{PROFILES}::test_a_profile_has_its_own_budget",
        ),
    ),
    (
        "meta.cursors",
        "Cursors lead through everything exactly once, and are refused with advice when they are stale or not ours.",
        (
            f"{DISCOVERY}::test_cursors_lead_through_all_matches_exactly_once",
            f"{VIEW}::test_a_cursor_is_stale_once_the_tools_changed",
            f"{MATRIX}::test_a_cursor_that_was_not_given_out_is_refused_with_advice",
        ),
    ),
    (
        "meta.no-dead-ends",
        "No answer is a dead end: nothing matched, a wrong name, a backend that is down.",
        (
            f"{DISCOVERY}::test_nothing_matched_is_said_with_the_nearest_names",
            f"{VIEW}::test_a_wrong_name_gets_the_nearest_names_back",
            f"{VIEW}::test_a_tool_whose_server_went_down_is_known_but_unavailable",
        ),
    ),
)

CLI = promises(
    "CLI",
    (
        "cli.serve",
        "`serve` without a configuration serves the demo servers and says so.",
        ("tests/cli/test_serve.py::test_without_a_configuration_it_serves_the_demo_and_says_so",),
    ),
    (
        "cli.stdio",
        "`stdio` serves one client.",
        ("tests/cli/test_stdio.py::test_a_client_searches_and_calls",),
    ),
    (
        "cli.demo",
        "`demo` walks through search, describe and call with the tokens of each step, and exits 0.",
        (
            "tests/cli/test_demo.py::test_the_walk_shows_every_step_and_its_cost",
            "tests/cli/test_demo.py::test_the_figures_add_up",
        ),
    ),
    (
        "cli.commands",
        "`search`, `browse`, `describe`, `call`, `config` and `status` answer people, and programs with `--json`.",
        (
            "tests/cli/test_discover.py::test_a_search_as_json_is_one_document",
            "tests/cli/test_discover.py::test_browsing_lists_servers_and_then_tools",
            "tests/cli/test_discover.py::test_tools_are_described_at_three_levels",
            "tests/cli/test_call.py::test_the_result_as_json_is_the_tools_own",
            "tests/cli/test_config_and_status.py::test_every_key_has_a_source",
            "tests/cli/test_config_and_status.py::test_status_tells_what_is_wrong_with_whom",
            "tests/cli/test_processes.py::test_a_command_answers_json_and_an_exit_code",
        ),
    ),
    (
        "cli.completion",
        "Shells complete the commands.",
        (
            "tests/cli/test_start.py::test_completion_scripts_name_the_commands",
            "tests/cli/test_start.py::test_completion_installs_itself_in_the_users_home",
        ),
    ),
)

TEST_KIT = promises(
    "public test kit",
    (
        "kit.fake",
        "`FakeBackend` does what it is told, and remembers what it was asked.",
        (f"{KIT}::test_a_fake_answers_as_it_is_told_and_remembers_what_it_was_asked",),
    ),
    (
        "kit.connect",
        "`connect(gateway, transport, era)` is a real client over every transport in both eras.",
        (f"{KIT}::test_a_real_client_is_connected_over_every_transport_in_both_eras",),
    ),
)

MUST_SHOW = promises(
    "must show",
    (
        "show.conformance",
        "No conformance check that passes directly fails through the gateway, in both spec versions.",
        (
            "tests/conformance/test_conformance.py::test_no_check_that_passes_directly_is_lost_through_the_gateway",
            "tests/conformance/test_conformance.py::test_the_fixture_passes_every_check_the_sdks_own_server_passes",
        ),
    ),
    (
        "show.matrix",
        "Every pair of client era and transport with upstream era and transport lists, calls, pages, errs and cancels.",
        (
            f"{MATRIX}::test_the_upstream_is_reached_in_its_own_era",
            f"{MATRIX}::test_every_tool_of_the_upstream_is_listed_in_its_order",
            f"{MATRIX}::test_a_full_listing_over_several_pages_has_everything_once",
            f"{MATRIX}::test_a_call_answers_what_the_upstream_answered",
            f"{MATRIX}::test_a_failed_tool_is_a_result_that_says_so",
            f"{MATRIX}::test_a_protocol_error_keeps_code_message_and_data",
            f"{MATRIX}::test_a_cancelled_call_is_cancelled_at_the_upstream",
            f"{MATRIX}::test_progress_arrives_in_order_and_before_the_answer",
        ),
    ),
    (
        "show.fleet-schemas",
        "All recorded servers load, no tool is lost, and every schema in full deep-equals the upstream's.",
        (
            f"{FLEET}::test_full_carries_the_definition_unchanged",
            "tests/search/test_fleet.py::test_every_tool_is_indexed_and_its_address_ranks_first",
        ),
    ),
    (
        "show.fleet-briefs",
        "Brief and schema exist for every recorded tool; the brief's median is at most 35 tokens, p99 at most 80.",
        (
            f"{FLEET}::test_briefs_are_single_lines_within_their_token_budget",
            f"{FLEET}::test_the_typed_form_loses_nothing_a_caller_needs",
            "benchmarks/tokens.py",
        ),
    ),
    (
        "show.real-servers",
        "At least ten servers nobody here wrote offer and answer the same through Portico as directly.",
        (
            "tests/real_servers/test_real_servers.py::test_full_exposure_offers_the_same_and_answers_the_same",
            "tests/real_servers/test_real_servers.py::test_the_meta_tools_find_describe_and_call_its_tools",
            "tests/real_servers/test_comparison.py::"
            "test_the_table_names_at_least_twelve_servers_of_both_registries_eras_and_all_transports",
        ),
    ),
    (
        "show.neighbours",
        "Slow, silent, crashing and noisy neighbours do not slow a healthy server down, and status says what is wrong.",
        (
            f"{SUPERVISOR}::test_status_shows_what_is_wrong_with_each_server_beside_a_healthy_one",
            "benchmarks/neighbours.py",
        ),
    ),
    (
        "show.lifetime",
        "No process outlives the gateway, and 200 starts and stops leave nothing behind.",
        (
            "tests/lifetime/test_endings.py::test_no_process_outlives_a_gateway_on_stdio",
            "tests/lifetime/test_endings.py::test_no_process_outlives_a_gateway_over_http",
            "tests/lifetime/test_cycles.py::test_two_hundred_starts_and_stops_of_a_server_leave_nothing",
        ),
    ),
    (
        "show.startup",
        "With a known manifest the first search is answered within twice the time of importing the SDK.",
        ("benchmarks/startup.py",),
    ),
    (
        "show.latency",
        "A call costs at most 2.5 times a direct one at the median.",
        ("benchmarks/latency.py",),
    ),
)

FINDING = promises(
    "search",
    (
        "search.pure",
        "Documents enter and ranked ids with reasons leave: asking changes nothing, and the same question has the same "
        "answer.",
        (
            f"{HYBRID}::test_vectors_do_not_change_when_they_are_searched",
            f"{HYBRID}::test_scores_fall_and_reasons_name_words_of_the_query",
            f"{HYBRID}::test_operators_code_and_noise_are_answered_like_words",
        ),
    ),
    (
        "search.fields",
        "Words are looked for in name, title, server, description, parameters, their descriptions and enums.",
        (
            f"{INDEX}::test_every_field_is_searched",
            "tests/search/test_schema_text.py::test_names_descriptions_and_enums_are_read_at_every_depth",
            "tests/search/test_tokens.py::test_an_identifier_gives_the_same_terms_however_it_is_spelt",
        ),
    ),
    (
        "search.meaning",
        "A tool is found by its meaning, also where it shares no word with the question.",
        (
            f"{HYBRID}::test_a_paraphrase_without_a_shared_word_finds_its_tool",
            f"{MEANINGS}::test_a_gateway_finds_by_meaning_what_shares_no_word_with_the_question",
        ),
    ),
    (
        "search.exact",
        "Whoever types a name or an address gets that tool first, whatever matches in words or meaning.",
        (
            f"{HYBRID}::test_an_exact_address_always_ranks_first",
            f"{HYBRID}::test_meaning_alone_never_ranks_before_an_exact_name",
            f"{INDEX}::test_of_names_that_differ_in_separators_only_the_one_typed_ranks_first",
        ),
    ),
    (
        "search.filters",
        "A search can be kept to a server, a category, tags, a latency and a success rate; untried tools pass.",
        (
            f"{HYBRID}::test_a_filter_by_group_hides_the_rest",
            f"{HYBRID}::test_a_filter_by_category_or_tag_hides_the_rest_whatever_the_case",
            f"{HYBRID}::test_a_tool_that_is_slow_or_fails_is_filtered_and_one_never_called_passes",
            f"{HYBRID}::test_a_filter_changes_who_is_shown_and_not_in_which_order",
            f"{SEARCHING}::test_a_search_can_be_kept_to_tags",
            f"{SEARCHING}::test_tools_that_failed_or_were_slow_can_be_left_out",
            f"{SEARCHING}::test_filters_that_know_of_no_call_say_so",
            f"{CLI_SEARCH}::test_every_filter_of_the_documentation_is_there",
        ),
    ),
    (
        "search.twins",
        "Tools of several servers that say the same share one place, and none is lost.",
        (
            f"{HYBRID}::test_tools_of_several_servers_that_say_the_same_share_one_place",
            f"{HYBRID}::test_tools_of_one_server_never_share_a_place",
            f"{HYBRID}::test_pages_show_every_tool_once_and_none_is_lost",
            f"{RESULTS}::test_many_twins_do_not_fill_the_page",
            f"{SEARCHING}::test_copies_of_a_tool_on_several_servers_take_one_place",
        ),
    ),
    (
        "search.needs",
        "A request with several needs gets a tool for each.",
        (
            f"{HYBRID}::test_a_request_with_several_needs_gets_a_tool_for_each",
            f"{INDEX}::test_a_request_with_several_needs_gets_a_tool_for_each",
        ),
    ),
    (
        "search.vectors",
        "Vectors have 8 bits a number, and words and vectors lie in one file that is mapped into memory.",
        (
            f"{ENCODER}::test_8_bits_keep_how_near_two_vectors_are",
            f"{HYBRID}::test_a_dumped_index_is_the_same_index",
            "tests/search/dense/test_vectors.py::TestNearness::test_rows_in_a_mapped_file_are_as_good_as_any",
            "tests/storage/test_index_file.py::"
            "test_an_index_that_was_loaded_stays_good_while_the_file_is_replaced_and_removed",
        ),
    ),
    issue=SEARCH,
)

THE_ENCODER = promises(
    "the encoder",
    (
        "encoder.package",
        "The weights, the vocabulary and the model card are in the package.",
        (
            f"{PACKAGE}::test_the_model_and_its_card_are_in_the_package",
            f"{PACKAGE}::test_the_card_tells_what_the_model_was_made_of_how_good_it_is_and_where_it_ends",
        ),
    ),
    (
        "encoder.offline",
        "Nothing is downloaded: search by meaning works where there is no network.",
        (
            f"{ENCODER}::test_no_network_is_needed",
            f"{PACKAGE}::test_search_by_meaning_works_where_there_is_no_network",
        ),
    ),
    (
        "encoder.light",
        "No training framework and no hub is installed with it, and importing search reads no model.",
        (
            f"{PACKAGE}::test_no_framework_and_no_hub_is_installed_with_it",
            f"{ENCODER}::test_importing_search_reads_no_model",
        ),
    ),
    (
        "encoder.steady",
        "The same text has the same vector, whatever ran before or runs beside it.",
        (
            f"{ENCODER}::test_the_same_text_is_the_same_vector_whatever_ran_before",
            f"{ENCODER}::test_many_threads_may_ask_a_new_encoder_at_once",
        ),
    ),
    (
        "encoder.missing",
        "Where the encoder cannot be loaded, words are searched alone, and agents and people are told.",
        (
            f"{ENCODER}::test_a_model_that_cannot_be_read_leaves_search_by_words",
            f"{ENCODER}::test_without_onnxruntime_search_goes_on_by_words",
            f"{SEARCHING}::test_without_the_model_words_are_searched_and_a_poor_answer_says_so",
            f"{CLI_SEARCH}::test_without_the_model_words_are_searched_and_the_reason_is_said",
            f"{CLI_SEARCH}::test_status_tells_how_tools_are_found",
        ),
    ),
    (
        "encoder.training",
        "The scripts and the queries it was trained with are here, with the licence of every source.",
        (
            "tests/training/test_readers.py::test_every_source_names_a_reader_a_commit_and_a_licence_that_lets_us",
            "tests/training/test_readers.py::test_the_list_of_sources_that_is_published_is_the_one_that_is_read",
            "tests/training/test_queries.py::test_every_row_names_a_tool_and_asks_for_it",
            "tests/training/test_examples.py::test_the_same_seed_gives_the_same_examples",
            "tests/training/test_export.py::test_the_graph_gives_the_vectors_of_its_weights",
        ),
    ),
    (
        "encoder.honest",
        "No training query is one that the benchmark asks.",
        ("tests/training/test_queries.py::test_no_query_is_one_that_search_is_judged_by",),
    ),
    issue=SEARCH,
)

STYLES = promises(
    "typos, abbreviations, other languages",
    (
        "styles.typos",
        "A misspelt question finds its tool: `k8s pods crashign`.",
        (
            f"{EVERYDAY}::test_a_slip_of_the_finger_finds_the_tool",
            f"{HYBRID}::test_a_typo_finds_its_tool",
        ),
    ),
    (
        "styles.abbreviations",
        "An abbreviation finds its tool.",
        (
            f"{EVERYDAY}::test_an_abbreviation_finds_the_tool",
            f"{INDEX}::test_a_word_used_for_another_finds_its_tool",
        ),
    ),
    (
        "styles.languages",
        "A question in another language finds its tool: `Rechnung an einen Kunden senden`.",
        (
            f"{EVERYDAY}::test_another_language_finds_the_tool",
            f"{HYBRID}::test_another_language_finds_its_tool",
            f"{WORDPIECE}::test_the_shipped_vocabulary_knows_other_languages",
        ),
    ),
    (
        "styles.measured",
        "Each style of question is measured apart.",
        (
            f"{RETRIEVAL}::test_a_folder_of_sets_is_measured_by_set_style_and_refusal",
            "benchmarks/retrieval.py",
        ),
    ),
    issue=SEARCH,
)

NOTHING_FITS = promises(
    "knowing when nothing fits",
    (
        "misfit.said",
        "What no tool does is said first, with the nearest servers.",
        (
            f"{RESULTS}::test_that_nothing_fits_is_said_first_with_the_nearest_servers_and_then_the_nearest_tools",
            f"{SEARCHING}::test_what_no_tool_does_is_said_before_the_few_that_are_nearest",
            "tests/interaction/test_searching_page.py::test_the_answer_that_nothing_fits_reads_as_the_page_shows_it",
            f"{EVERYDAY}::test_what_no_tool_does_is_called_so_and_what_one_does_is_not",
            f"{CLI_SEARCH}::test_that_nothing_fits_is_said_with_the_nearest_servers_and_a_few_tools",
        ),
    ),
    (
        "misfit.weak",
        "A weak but right match is not hidden: the nearest tools follow, and the rest can be had.",
        (
            f"{RESULTS}::test_of_what_does_not_fit_a_few_are_shown_and_the_rest_can_be_had",
            f"{RESULTS}::test_a_query_that_fits_is_not_called_a_misfit",
            f"{SEARCHING}::test_what_a_tool_does_is_not_denied",
        ),
    ),
    issue=SEARCH,
)

FROM_USE = promises(
    "learning from use",
    (
        "learning.followed",
        "The tool that was called after a search comes earlier in the next search like it.",
        (
            f"{LEARNING}::test_what_was_called_after_a_search_comes_first_in_the_next_like_it",
            f"{HABITS}::test_queries_of_one_meaning_lift_though_they_share_no_word",
            f"{LEARNING}::test_a_call_that_fails_is_no_sign_that_the_tool_was_meant",
        ),
    ),
    (
        "learning.together",
        "What is used together with the latest calls is lifted.",
        (
            f"{HABITS}::test_what_was_used_together_with_the_latest_calls_is_lifted_whichever_came_first",
            f"{LEARNER}::test_tools_used_together_are_lifted_after_one_of_them",
        ),
    ),
    (
        "learning.kept",
        "What was learnt outlives a restart, and gateways on one folder share it.",
        (
            f"{LEARNING}::test_a_restart_keeps_what_was_learnt",
            f"{LEARNING}::test_another_gateway_on_the_same_folder_learns_and_forgets_too",
        ),
    ),
    (
        "learning.bounded",
        "What is kept is bounded for each scope, and so is the number of scopes.",
        (
            f"{KEPT_HABITS}::test_each_scope_keeps_its_strongest_and_no_more",
            f"{KEPT_HABITS}::test_callers_under_ever_new_names_do_not_fill_the_disk",
            f"{LEARNER}::test_a_crowd_of_sessions_and_names_takes_bounded_room",
        ),
    ),
    (
        "learning.fades",
        "What was learnt counts half after a half-life.",
        (
            f"{HABITS}::test_what_was_learnt_counts_half_after_a_half_life",
            f"{LEARNER}::test_what_was_learnt_fades",
        ),
    ),
    (
        "learning.scopes",
        "Each caller learns alone, or all together where the configuration says so, or nobody.",
        (
            f"{LEARNING}::test_what_a_caller_taught_is_that_caller_s_own",
            f"{LEARNING}::test_what_was_learnt_in_a_profile_stays_in_it",
            f"{LEARNING}::test_all_callers_learn_together_where_the_configuration_says_so",
            f"{LEARNING}::test_with_learning_off_nothing_is_learnt_and_no_file_made",
        ),
    ),
    (
        "learning.forget",
        "`portico search --forget` drops what was learnt, or a server's or a profile's part of it.",
        (
            f"{FORGETTING}::test_what_was_learnt_is_forgotten_and_counted",
            f"{FORGETTING}::test_forgetting_can_be_narrowed_to_a_server",
            f"{KEPT_HABITS}::test_forgetting_can_be_narrowed_to_a_profile_or_a_server",
        ),
    ),
    (
        "learning.private",
        "No text of a query is kept, and nobody else may read what is.",
        (
            f"{LEARNING}::test_no_text_of_a_query_is_kept",
            f"{KEPT_HABITS}::test_nobody_else_may_read_what_was_learnt",
        ),
    ),
    (
        "learning.harmless",
        "An exact name wins whatever was learnt, what matches nothing is not lifted, and no lift exceeds its bound.",
        (
            f"{HABITS}::test_an_exact_name_wins_whatever_was_learnt",
            f"{LEARNING}::test_an_exact_name_comes_first_whatever_was_learnt",
            f"{HYBRID}::test_a_tool_that_matches_nothing_is_not_lifted",
            f"{HABITS}::test_more_calls_lift_more_but_never_over_the_bound",
        ),
    ),
    (
        "learning.cold",
        "An index that has learnt nothing ranks as if there were no learning.",
        (
            f"{HABITS}::test_a_cold_index_is_unchanged",
            f"{HYBRID}::test_no_lifts_change_nothing",
            f"{HABITS}::test_habits_of_nobody_lift_nothing",
        ),
    ),
    issue=SEARCH,
)

EXPLAINED = promises(
    "explain",
    (
        "explain.signals",
        "Every result can say why it ranked: fields and terms hit, words, meaning, what use taught, filters.",
        (
            f"{EXPLAIN}::test_a_hit_tells_every_signal_in_one_line",
            f"{EXPLAIN}::test_an_explained_answer_tells_how_sure_it_is_what_was_compared_and_who_could_be_found",
            f"{INDEX}::test_reasons_name_the_words_and_fields_that_were_hit",
            f"{HABITS}::test_a_lift_says_why",
        ),
    ),
    (
        "explain.ways",
        "`portico search --explain` tells it, as JSON too, and an agent gets it with `detail`.",
        (
            f"{CLI_SEARCH}::test_an_explanation_tells_every_signal_of_every_hit",
            f"{CLI_SEARCH}::test_an_explanation_as_json_is_complete",
            f"{SEARCHING}::test_an_agent_can_ask_why",
        ),
    ),
    (
        "explain.missed",
        "Of a named tool that was missed it is told at which rank it stood and why.",
        (
            f"{CLI_SEARCH}::test_an_explanation_tells_where_a_named_tool_stood",
            f"{EXPLAIN}::test_a_tool_after_the_page_is_told_its_rank_and_what_it_lacks_beside_the_last",
            f"{EXPLAIN}::test_a_tool_that_a_filter_hides_is_told_where_it_would_stand",
            f"{HYBRID}::test_a_placement_agrees_with_the_ranking",
        ),
    ),
    issue=SEARCH,
)

INCREMENTAL = promises(
    "incremental",
    (
        "incremental.words",
        "A changed server re-indexes its own tools and no others, and ends where a fresh index would.",
        (
            f"{REPLACING}::test_a_changed_hash_is_read_again_and_an_unchanged_one_is_not",
            f"{REPLACING}::test_a_group_is_replaced_or_removed_without_touching_the_others",
            f"{HYBRID}::test_an_index_that_followed_every_change_answers_like_a_fresh_one",
        ),
    ),
    (
        "incremental.vectors",
        "A changed server encodes only what changed.",
        (
            f"{MEANINGS}::test_a_changed_server_encodes_only_what_changed",
            f"{HYBRID}::test_unchanged_documents_keep_their_vectors_and_changed_ones_lose_theirs",
        ),
    ),
    (
        "incremental.kept",
        "Vectors are kept under the hash of their text: no text is encoded twice, not even where the index was lost.",
        (
            f"{MEANINGS}::test_a_second_start_encodes_nothing",
            f"{MEANINGS}::test_vectors_outlive_an_index_that_is_lost",
            f"{MEANINGS}::test_another_catalog_with_the_same_texts_finds_them_encoded",
            f"{KEPT_VECTORS}::test_several_processes_append_and_nothing_is_lost",
        ),
    ),
    (
        "incremental.load",
        "An index loads from disk to the same answers, and a damaged one is built again.",
        (
            f"{HYBRID}::test_a_dumped_index_is_the_same_index",
            f"{REPLACING}::test_a_damaged_dump_is_refused_with_advice",
            f"{SYNC}::test_an_index_that_cannot_be_read_is_built_again",
            "benchmarks/scale.py",
        ),
    ),
    (
        "incremental.swap",
        "Swapping a snapshot blocks no query, and neither do reading the model and encoding.",
        (
            f"{SYNC}::test_a_query_that_runs_while_the_snapshot_is_replaced_sees_one_moment",
            f"{MEANINGS}::test_words_are_searched_at_once_and_meaning_as_soon_as_it_is_there",
            "tests/disclosure/test_searching.py::test_others_are_served_while_the_model_is_read",
        ),
    ),
    issue=SEARCH,
)

BENCHMARK = promises(
    "public benchmark",
    (
        "benchmark.sets",
        "Every set under a folder is measured, or anyone's own tools and queries, gzipped or not.",
        (
            f"{TOOL_SETS}::test_sets_are_found_however_deep_and_in_the_order_of_their_paths",
            f"{TOOL_SETS}::test_gzipped_lines_are_read_whatever_the_file_is_called",
            f"{TOOL_SETS}::test_recorded_servers_become_tools_that_know_how_their_server_introduces_itself",
            f"{RETRIEVAL}::test_tools_and_queries_of_one_s_own_are_measured",
        ),
    ),
    (
        "benchmark.measures",
        "Recall, nDCG and MRR come with bootstrap intervals, by set and style, beside FastMCP's BM25.",
        (
            "tests/benchmarks/test_metrics.py::test_each_measure_of_one_ranking_has_the_value_worked_out_by_hand",
            "tests/benchmarks/test_metrics.py::test_an_interval_is_as_wide_as_the_questions_differ",
            f"{RETRIEVAL}::test_a_folder_of_sets_is_measured_by_set_style_and_refusal",
        ),
    ),
    (
        "benchmark.ranks",
        "`--ranks` writes one line of JSON per question.",
        (f"{RETRIEVAL}::test_ranks_are_one_line_of_json_per_question",),
    ),
    (
        "benchmark.scale",
        "Build, load, memory, queries and one changed server are measured up to 100,000 tools.",
        (
            "tests/benchmarks/test_synthetic.py::test_the_real_tools_come_first_and_copies_fill_the_rest",
            "benchmarks/scale.py",
        ),
    ),
    issue=SEARCH,
)

SEARCH_SHOWN = promises(
    "must show",
    (
        "show.quality",
        "The figures of retrieval can be had by anyone.",
        ("benchmarks/retrieval.py",),
    ),
    (
        "show.ablation",
        "A table tells what each part of search is worth.",
        (
            f"{RETRIEVAL}::test_the_ablation_has_a_row_for_every_variant_and_for_use",
            "benchmarks/retrieval.py",
        ),
    ),
    (
        "show.speed",
        "Query, load and build times are held to their goals at 5,000 and 100,000 tools.",
        ("benchmarks/scale.py",),
    ),
    (
        "show.size",
        "The package with its weights is at most 40 MB.",
        (f"{PACKAGE}::test_the_package_with_its_weights_is_as_small_as_was_promised",),
    ),
    (
        "show.odd-queries",
        "Empty, endless, binary, other-script and operator-laden queries are answered sensibly, with bounded work.",
        (
            f"{HYBRID}::test_a_query_that_asks_for_nothing_finds_nothing",
            f"{HYBRID}::test_a_very_long_query_finds_what_it_begins_with",
            f"{HYBRID}::test_operators_code_and_noise_are_answered_like_words",
            f"{HYBRID}::test_operators_around_words_do_not_hide_what_the_words_ask_for",
            f"{HYBRID}::test_any_text_is_answered_with_finite_scores",
            f"{EVERYDAY}::test_however_long_a_query_is_it_asks_for_no_more_than_a_long_one",
            f"{WORDPIECE}::test_a_text_is_cut_at_the_limit_and_always_framed",
            f"{SEARCHING}::test_an_answer_is_text_and_can_be_sent",
        ),
    ),
    (
        "show.odd-tools",
        "Tools with empty or 18,000-character descriptions are found.",
        (
            f"{HYBRID}::test_tools_with_empty_or_endless_descriptions_are_found",
            f"{INDEX}::test_a_very_long_description_does_not_dominate",
            f"{INDEX}::test_tools_without_any_text_are_indexed_by_name",
        ),
    ),
    issue=SEARCH,
)

RECORDED = promises(
    "1 Storage",
    (
        "record.both",
        "One suite holds on SQLite, the default, and on PostgreSQL by `database_url`.",
        (
            f"{RECORD}::test_counts_add_up_and_moments_only_move_forward",
            f"{OPENING}::test_every_spelling_connects",
            f"{TWO_GATEWAYS}::test_what_one_gateway_lists_the_other_knows",
        ),
    ),
    (
        "record.migrations",
        "Migrations run on start, once however many gateways start; a newer record is refused and left alone.",
        (
            f"{OPENING}::test_gateways_that_start_at_once_make_the_tables_once",
            f"{OPENING}::test_the_tables_are_those_the_migrations_make",
            f"{OPENING}::test_a_record_of_a_newer_portico_is_refused_and_left_alone",
        ),
    ),
    (
        "record.batches",
        "Use is written in batches off the hot path, flushed on shutdown, bounded, and kept as long as set.",
        (
            f"{KEEPER}::test_what_happens_is_written_soon_by_itself",
            f"{KEEPER}::test_the_end_writes_what_was_heard_last_though_nothing_was_opened_yet",
            f"{USAGE}::test_what_waits_takes_bounded_room_and_that_is_said_once",
            f"{KEEPER}::test_what_is_too_old_goes",
            f"{RECORD}::test_pruning_keeps_the_latest_of_too_many_calls",
        ),
    ),
    (
        "record.killed",
        "A gateway that is killed under load loses at most the last second of use, and corrupts nothing.",
        (
            f"{KILLED}::test_a_gateway_that_is_killed_loses_no_batch_that_was_written_and_breaks_none",
            f"{KILLING}::test_a_gateway_killed_under_load_keeps_what_was_written_and_corrupts_nothing",
        ),
    ),
    (
        "record.shared",
        "Two gateways on one database see each other's catalog changes.",
        (
            f"{TWO_GATEWAYS}::test_what_one_gateway_lists_the_other_knows",
            f"{TWO_GATEWAYS}::test_a_gateway_that_comes_later_begins_with_what_the_others_know",
            f"{TWO_GATEWAYS}::test_a_server_configured_otherwise_is_not_taken_for_the_same",
        ),
    ),
    (
        "record.away",
        "A database that is away costs no call, and no message has its password.",
        (
            f"{TWO_GATEWAYS}::test_a_database_that_cannot_be_reached_costs_no_call",
            f"{KEEPER}::test_what_could_not_be_written_is_written_when_it_can",
            f"{OPENING}::test_a_wrong_password_is_said_and_not_repeated",
        ),
    ),
    issue=SHOWN,
)

STANDING = promises(
    "2 Statistics, 3 Tiers",
    (
        "use.statistics",
        "Invocations, successes, p50 and p95, last use, 7- and 30-day counts of each tool; in describe, REST and CLI.",
        (
            f"{ROWS_USAGE}::test_b6_latency_p95_success_rate_and_invocations_are_in_the_answers",
            f"{STATISTICS}::test_a_percentile_is_within_five_percent_of_the_true_one",
            f"{API_TIERS}::test_a_tool_is_shown_whole",
            f"{CLI_USAGE}::test_every_tool_that_was_called_has_its_figures",
        ),
    ),
    (
        "use.prior",
        "Used tools come first among equals in search and in listings, and hide no exact match.",
        (
            f"{ROWS_USAGE}::test_a10_of_two_equal_tools_the_used_one_comes_first_in_search",
            f"{ROWS_USAGE}::test_a10_used_tools_come_first_in_a_listing",
            f"{ROWS_USAGE}::test_a10_however_popular_no_tool_hides_an_exact_match",
        ),
    ),
    (
        "tiers.score",
        "The score and thresholds of the seed, without its bugs; computed daily and on demand.",
        (
            f"{ROWS_USAGE}::test_b3_the_score_is_of_popularity_reliability_speed_and_recency",
            f"{ROWS_USAGE}::test_b3_without_history_a_tool_is_not_recent",
            f"{ROWS_USAGE}::test_b3_the_running_gateway_computes_tiers_daily",
            f"{CLI_TIERS}::test_a_computation_tells_what_moved_and_is_kept",
        ),
    ),
    (
        "tiers.hot",
        "Pins head the hot list; without use and pins it is one tool of each server, and says so.",
        (
            f"{CLI_TIERS}::test_pins_are_marked_and_head_the_hot_list",
            f"{CLI_TIERS}::test_where_no_use_is_known_the_cold_start_is_told",
            f"{API_TIERS}::test_the_hot_list_says_why_these_tools",
        ),
    ),
    issue=SHOWN,
)

SORTED = promises(
    "4 Categories, 9 Capability index",
    (
        "categories.authority",
        "The configuration says a tool's category, else its server's tags, else its words.",
        (
            f"{CATEGORIES}::test_the_config_s_word_on_a_tool_comes_before_its_word_on_the_server_and_that_before_tags",
            f"{CATEGORIES}::test_the_first_tag_that_means_one_of_ours_wins_else_the_first_tag",
            f"{CATEGORIES}::test_servers_nobody_labelled_are_sorted_by_their_words",
        ),
    ),
    (
        "categories.stable",
        "A taxonomy of 12 to 24 categories, assigned the same whatever comes beside; measured on the fleet.",
        (
            f"{CATEGORIES}::test_there_are_twelve_to_twenty_four_categories_each_with_a_sentence",
            f"{CATEGORIES}::test_one_more_tool_does_not_move_the_others",
            f"{CATEGORIES}::test_the_fleet_is_sorted_as_its_readers_did",
        ),
    ),
    (
        "categories.overview",
        "The overview of categories has counts, servers and popular tools.",
        (f"{API_TIERS}::test_categories_say_what_is_in_them",),
    ),
    (
        "index.capability",
        "The capability index has at most 150 tokens at 182 servers and stays until the set of servers changes.",
        (
            f"{FLEET_CATALOG}::test_the_capability_index_fits_its_tokens",
            f"{ANNOUNCED}::test_a_server_that_gets_known_changes_the_meta_tools_once_and_its_tools_never",
        ),
    ),
    issue=SHOWN,
)

FITTING = promises(
    "5 Budgets, 8 Token ledger",
    (
        "budgets.every",
        "Every answer fits its budget, says what was left out, and has a cursor that continues; nothing is lost.",
        (
            f"{FLEET}::test_no_answer_is_over_its_budget_and_its_parts_join_to_the_whole",
            f"{DESCRIBING}::test_parts_of_anything_fit_and_join_to_the_whole",
            f"{OWN_RESOURCES}::test_what_does_not_fit_is_continued_and_nothing_is_lost",
            f"{FLEET_CATALOG}::test_browsing_leads_through_every_tool_exactly_once_and_in_budget",
        ),
    ),
    (
        "budgets.schema",
        "The typed form costs at most 55% of the listing on average, with every name, type, enum and default.",
        (
            f"{FLEET}::test_the_typed_form_loses_nothing_a_caller_needs",
            f"{FLEET}::test_the_typed_form_costs_little_more_than_half_of_the_listing",
            "benchmarks/tokens.py",
        ),
    ),
    (
        "budgets.tokens",
        "`portico tokens` says what is paid directly, by each exposure and for each tier; --verify checks.",
        (
            f"{CLI_TOKENS}::test_as_json_the_figures_add_up",
            f"{CLI_TOKENS}::test_a_tier_over_its_budget_is_named_and_fails_when_verified",
            f"{ROWS_CLI}::test_b1_every_tier_of_the_demo_servers_keeps_its_budget",
        ),
    ),
    (
        "ledger.account",
        "For every session and in total: what a listing would have cost, what was shown; counted off the hot path.",
        (
            f"{LEDGER}::test_a_session_s_account_has_what_it_was_shown_and_what_a_listing_would_have_cost",
            f"{LEDGER}::test_nothing_is_counted_while_it_is_heard",
            f"{API_HOUSE}::test_the_ledger_says_what_was_saved_and_no_sessions_id",
            f"{OWN_RESOURCES}::test_the_statistics_have_this_sessions_tokens_and_everybodys",
        ),
    ),
    issue=SHOWN,
)

OFFERED = promises(
    "6 Resources, prompts; 7 REST",
    (
        "offers.resources",
        "Resources, templates, completions and prompts of our own, paged and live, in both eras.",
        (
            f"{RESOURCES}::test_everything_that_is_listed_can_be_read",
            f"{RESOURCES}::test_a_wrong_uri_is_refused_with_the_code_of_the_era_and_the_nearest",
            f"{COMPLETION}::test_every_argument_of_ours_is_completed",
            f"{PROMPTS}::test_all_three_are_listed_and_given",
            f"{ROWS_DISCOVERY}::test_a8_prompts_lead_to_tools",
        ),
    ),
    (
        "offers.notifications",
        "One burst is one notification of each kind, to legacy and modern clients.",
        (
            f"{ANNOUNCED}::test_thirty_servers_that_come_in_a_burst_are_one_notification_of_each_kind",
            f"{ANNOUNCED}::test_the_loss_and_return_of_a_server_is_told_to_who_watches_servers",
        ),
    ),
    (
        "rest.tiers",
        "REST serves the tiers with ETag and Cache-Control, pages, token limits and filters, behind the same token.",
        (
            f"{ROWS_REST}::test_b2_the_four_endpoints_answer_with_their_tiers",
            f"{API_BODIES}::test_each_tier_is_kept_as_long_as_it_may_be_and_revalidated_for_nothing",
            f"{API_TIERS}::test_following_next_shows_every_tool_of_a_category_exactly_once",
            f"{API_SEARCH}::test_filters_narrow_what_is_found_and_what_is_listed",
            f"{API_PROBLEMS}::test_without_the_token_nobody_comes_in",
        ),
    ),
    (
        "rest.fuzzed",
        "Whatever is asked of it, REST answers as its description says, and never with a 500.",
        (
            f"{API_FUZZ}::test_the_api_does_as_it_says_and_never_fails",
            f"{API_PROBLEMS}::test_what_goes_wrong_inside_is_logged_and_not_told",
        ),
    ),
    (
        "rest.speed",
        "The four tiers answer within 20, 30, 50 and 100 ms at the 95th percentile on 182 servers.",
        ("benchmarks/tiers.py",),
    ),
    issue=SHOWN,
)

SEEDS = promises(
    "the rows of the seeds",
    (
        "seeds.gatemini",
        "Rows A1 to A12 and A14.",
        (
            f"{ROWS_DISCOVERY}::test_a1_a_tool_is_described_in_brief_and_in_full",
            f"{ROWS_DISCOVERY}::test_a2_a_search_costs_less_than_100_tokens_a_result_and_has_schemas_if_asked",
            f"{ROWS_DISCOVERY}::test_a3_tools_are_listed_by_cursor_fifty_a_page",
            f"{ROWS_DISCOVERY}::test_a4_large_answers_are_marked_as_material_for_the_assistant",
            f"{ROWS_DISCOVERY}::test_a5_resources_and_templates_tell_of_everything",
            f"{ROWS_DISCOVERY}::test_a6_arguments_of_templates_are_completed",
            f"{ROWS_DISCOVERY}::test_a7_clients_hear_that_backends_and_tools_came",
            f"{ROWS_DISCOVERY}::test_a8_prompts_lead_to_tools",
            f"{ROWS_DISCOVERY}::test_a9_the_search_tool_says_what_is_behind_it",
            f"{ROWS_USAGE}::test_a10_calls_are_counted",
            f"{ROWS_DOING}::test_a11_a_large_output_has_a_header_under_500_tokens_and_a_uri_for_the_details",
            f"{ROWS_DOING}::test_a12_a_repeated_call_is_answered_from_the_cache_and_marked",
            f"{ROWS_FLOW}::test_a14_a_discovery_flow_costs_less_than_4_000_tokens",
            f"{ROWS_FLOW}::test_a14_every_tool_is_still_reachable",
        ),
    ),
    (
        "seeds.tiers",
        "Rows B1 to B8.",
        (
            f"{ROWS_CLI}::test_b1_a_tier_that_is_over_fails_and_is_named",
            f"{ROWS_REST}::test_b2_the_four_endpoints_answer_with_their_tiers",
            f"{ROWS_USAGE}::test_b3_the_thresholds_make_four_tiers",
            f"{ROWS_REST}::test_b4_lists_are_loaded_until_the_budget_is_spent_and_go_on_where_it_was",
            f"{ROWS_REST}::test_b5_quick_tools_of_a_kind_are_found_in_one_request",
            f"{ROWS_USAGE}::test_b6_latency_p95_success_rate_and_invocations_are_in_the_answers",
            f"{ROWS_REST}::test_b7_the_tiers_are_kept_for_as_long_as_the_seed_says",
            f"{ROWS_CLI}::test_b8_a_fleet_of_182_servers_costs_a_hundredth_and_all_tiers_together_12_000",
        ),
    ),
    (
        "seeds.others",
        "Rows C1 to C4, D1 and D7.",
        (
            f"{ROWS_DISCOVERY}::test_c1_servers_are_listed_with_identifier_description_version_and_instructions",
            f"{ROWS_DISCOVERY}::test_c2_a_server_s_tools_are_listed",
            f"{ROWS_DISCOVERY}::test_c3_a_tool_s_details_have_an_example_in_the_script_language",
            f"{ROWS_DOING}::test_c4_the_structure_of_a_real_response_is_told_instead_of_the_response",
            f"{ROWS_DISCOVERY}::test_d1_three_levels_of_detail_each_with_more_than_the_one_before",
            f"{ROWS_DISCOVERY}::test_d7_tools_have_namespaces_categories_and_tags",
        ),
    ),
    issue=SHOWN,
)

PROMISES: tuple[Promise, ...] = (
    *PROJECT,
    *CONFIGURATION,
    *UPSTREAM,
    *RAW_LAYER,
    *CATALOG,
    *DOOR,
    *META_TOOLS,
    *CLI,
    *TEST_KIT,
    *MUST_SHOW,
    *FINDING,
    *THE_ENCODER,
    *STYLES,
    *NOTHING_FITS,
    *FROM_USE,
    *EXPLAINED,
    *INCREMENTAL,
    *BENCHMARK,
    *SEARCH_SHOWN,
    *RECORDED,
    *STANDING,
    *SORTED,
    *FITTING,
    *OFFERED,
    *SEEDS,
)
