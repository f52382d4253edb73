"""What a security review of 0.1.0 found, a row for each finding, and the tests that failed there
and pass now."""

from tests.promises import promises

REVIEWED = "issue 14, What a security review found"

FOLDER = "tests/security"
SCHEMAS, PATHS = f"{FOLDER}/test_schema_explanations.py", f"{FOLDER}/test_path_weight.py"
DEFINITIONS, TEXTS = f"{FOLDER}/test_large_definitions.py", f"{FOLDER}/test_hostile_texts.py"
STATE, TURNS = f"{FOLDER}/test_shared_state.py", f"{FOLDER}/test_large_result_turns.py"
QUESTIONS, CHANGED = f"{FOLDER}/test_question_origin.py", f"{FOLDER}/test_changed_definitions.py"
CREDENTIALS, SCOPE = f"{FOLDER}/test_credential_origins.py", f"{FOLDER}/test_resource_scope.py"
SECRETS, SCRIPTS = f"{FOLDER}/test_secret_masking.py", f"{FOLDER}/test_fair_scripts.py"
SESSIONS, UNREAD = f"{FOLDER}/test_session_shares.py", f"{FOLDER}/test_unread_answers.py"
WRITTEN, CONFIG = f"{FOLDER}/test_written_files.py", f"{FOLDER}/test_configuration_files.py"
JAIL, DESCRIPTORS = f"{FOLDER}/test_python_jail.py", f"{FOLDER}/test_inherited_descriptors.py"
AUDIT, TOKENS = f"{FOLDER}/test_audit_completeness.py", f"{FOLDER}/test_wrong_tokens.py"
ORIGINS, META = f"{FOLDER}/test_foreign_origins.py", f"{FOLDER}/test_client_meta.py"
LINKS, CALLS = f"{FOLDER}/test_foreign_links.py", f"{FOLDER}/test_script_calls.py"
LOCK = f"{FOLDER}/test_locked_dependencies.py"
COST, VALUES, PAUSES = (
    "tests/execution/test_schema_cost.py",
    "tests/upstream/test_json_values.py",
    "tests/fuzz/test_pauses.py",
)

STALLS = promises(
    "1 Nothing holds the event loop",
    (
        "reviewed.1-explanations",
        "No value and no schema makes a check or its explanation run on: the work is counted before it is done.",
        (
            f"{SCHEMAS}::test_a_recursive_choice_is_answered_however_deep_the_value",
            f"{SCHEMAS}::test_branches_that_share_definitions_are_not_unfolded_without_end",
            f"{SCHEMAS}::test_a_pattern_that_would_take_long_is_left_to_the_server",
            f"{SCHEMAS}::test_an_answer_that_fits_none_of_hundreds_of_choices_is_passed_on",
            f"{SCHEMAS}::test_what_is_wrong_at_the_beginning_of_a_large_value_is_still_explained",
            f"{COST}::test_no_value_is_checked_more_often_than_was_counted",
        ),
    ),
    (
        "reviewed.2-paths",
        "No path, reference or pattern unfolds what it has doubled.",
        (
            f"{PATHS}::test_what_a_path_has_doubled_is_not_unfolded_when_it_is",
            f"{PATHS}::test_what_a_reference_in_a_workflow_has_doubled_is_not_unfolded_when_it_is",
            f"{PATHS}::test_groups_of_a_pattern_that_repeat_are_bounded_when_they_are",
        ),
    ),
    (
        "reviewed.19-sizes",
        "Requests, messages and definitions are bounded by what they cost, not by their bytes alone.",
        (
            f"{SCHEMAS}::test_a_request_of_a_million_values_is_refused_before_it_is_decoded",
            f"{DEFINITIONS}::test_a_description_of_megabytes_is_cut_and_that_is_said",
            f"{DEFINITIONS}::test_a_schema_of_megabytes_is_left_out_and_that_is_said",
            f"{VALUES}::test_the_count_is_of_values_alone",
            f"{TEXTS}::test_a_large_description_is_parsed_in_a_process_of_its_own",
        ),
    ),
    issue=REVIEWED,
)

STATES = promises(
    "2 Nothing is shared by a claimed name",
    (
        "reviewed.3-state",
        "Without a session, what was kept for a client is found by the handle that it was issued and by nothing else.",
        (
            f"{STATE}::test_what_a_script_stores_is_found_with_the_handle_it_was_told_and_not_by_the_same_name",
            f"{STATE}::test_no_other_client_approves_a_destructive_step_by_last",
            f"{STATE}::test_last_is_the_last_run_of_the_handle_that_was_brought",
            f"{STATE}::test_clients_of_one_name_have_each_their_own_instance_of_a_stateful_server",
            f"{STATE}::test_a_link_that_one_client_was_given_leads_no_other_anywhere",
        ),
    ),
    issue=REVIEWED,
)

FINDINGS = promises(
    "3 Findings 4 to 21",
    (
        "reviewed.4-questions",
        "A server's question says whose it is, and hides nothing.",
        (
            f"{QUESTIONS}::test_a_form_says_who_asks_and_hides_nothing",
            f"{QUESTIONS}::test_a_message_can_neither_pass_for_anothers_nor_push_the_name_out_of_view",
            f"{QUESTIONS}::test_sampling_says_who_asks_and_hides_nothing",
            f"{QUESTIONS}::test_an_address_that_is_not_plainly_one_of_the_web_is_not_shown",
        ),
    ),
    (
        "reviewed.5-changes",
        "What changed about a tool is said in neutral words, and scripts and workflows do not run past it.",
        (
            f"{CHANGED}::test_a_refusal_says_what_changed_and_urges_nothing",
            f"{CHANGED}::test_a_tool_that_claims_less_safety_than_before_is_not_called_unseen",
            f"{CHANGED}::test_a_script_does_not_call_a_tool_that_is_not_what_its_caller_was_shown",
            f"{CHANGED}::test_a_workflow_stops_at_a_tool_that_is_not_what_its_caller_was_shown",
        ),
    ),
    (
        "reviewed.6-origins",
        "The credentials of an API stay with the origin that they went to first, or that base_url names.",
        (
            f"{CREDENTIALS}::test_an_edited_description_does_not_get_the_credentials_at_the_next_start",
            f"{CREDENTIALS}::test_an_edited_description_does_not_get_the_credentials_at_the_next_reconnect",
            f"{CREDENTIALS}::test_a_description_from_the_web_gets_credentials_for_its_own_origin_only",
        ),
    ),
    (
        "reviewed.7-scope",
        "Resources, templates, prompts and subscriptions obey profiles and denials.",
        (
            f"{SCOPE}::test_where_tools_are_left_out_so_are_resources_and_prompts",
            f"{SCOPE}::test_what_is_named_is_shown_and_nothing_beside_it",
            f"{SCOPE}::test_an_address_that_a_server_neither_lists_nor_has_a_template_for_is_refused",
        ),
    ),
    (
        "reviewed.8-secrets",
        "Values of secrets are masked in what a failing server says, wherever it is shown.",
        (
            f"{SECRETS}::test_a_failing_stdio_server_tells_clients_no_secret",
            f"{SECRETS}::test_a_server_that_does_not_start_shows_no_secret_anywhere",
            f"{SECRETS}::test_rest_shows_no_secret_of_a_server_that_does_not_start",
        ),
    ),
    (
        "reviewed.9-workers",
        "Workers of scripts are shared by caller.",
        (
            f"{SCRIPTS}::test_a_flood_of_scripts_leaves_a_worker_to_the_others",
            f"{SCRIPTS}::test_callers_take_turns_where_all_workers_are_taken",
        ),
    ),
    (
        "reviewed.10-results",
        "Work on large results is shared by caller.",
        (
            f"{TURNS}::test_one_client_s_many_slow_readings_hold_up_no_other_s_slow_one",
            f"{TURNS}::test_one_client_s_many_slow_readings_hold_up_no_other_s_large_answer",
            f"{TURNS}::test_what_is_quickly_read_waits_for_no_slow_reading",
        ),
    ),
    (
        "reviewed.11-sessions",
        "Sessions and listening streams are shared by caller, and only an introduction opens a session.",
        (
            f"{SESSIONS}::test_an_address_that_holds_all_sessions_gives_way_to_another",
            f"{SESSIONS}::test_a_flood_of_sessions_ends_none_of_another_address",
            f"{SESSIONS}::test_only_what_initialises_opens_a_session_or_ends_another",
            f"{SESSIONS}::test_a_caller_cannot_take_every_listening_stream",
        ),
    ),
    (
        "reviewed.12-unread",
        "Answers that are not read wait on disk, within a total.",
        (
            f"{UNREAD}::test_unread_answers_take_no_memory_and_can_still_be_read",
            f"{UNREAD}::test_what_all_leave_unread_is_bounded_and_a_client_that_reads_loses_nothing",
        ),
    ),
    (
        "reviewed.13-written-files",
        "What is adopted is written so that no shell expands it, and never through a link.",
        (
            f"{WRITTEN}::test_a_shell_that_reads_the_env_file_expands_and_runs_nothing",
            f"{WRITTEN}::test_generated_texts_read_back_as_they_were_in_a_shell",
            f"{WRITTEN}::test_secrets_are_not_written_through_a_link",
        ),
    ),
    (
        "reviewed.14-approval",
        "Until approvals exist for every call, a call of a destructive tool is marked in the audit log.",
        (f"{AUDIT}::test_a_call_of_a_tool_that_destroys_is_marked",),
    ),
    (
        "reviewed.15-jail",
        "Python scripts run inside the same jail as the others.",
        (
            f"{JAIL}::test_the_process_of_a_script_has_a_filter_and_can_gain_no_privileges",
            f"{JAIL}::test_the_kernel_stands_behind_the_limits_of_a_script",
            f"{JAIL}::test_a_program_in_the_jail_reads_no_file",
            f"{JAIL}::test_a_program_in_the_jail_starts_no_process",
        ),
    ),
    (
        "reviewed.16-configuration",
        "Only files that nobody else can write are taken as configuration.",
        (
            f"{CONFIG}::test_a_configuration_that_others_can_write_is_refused_with_what_to_do",
            f"{CONFIG}::test_a_running_gateway_keeps_its_configuration_until_nobody_else_can_write_the_file",
        ),
    ),
    (
        "reviewed.17-descriptors",
        "No process that is started has descriptors that the gateway inherited.",
        (f"{DESCRIPTORS}::test_no_server_program_script_or_guard_has_what_the_gateway_inherited",),
    ),
    (
        "reviewed.18-audit",
        "The audit log has every request that reaches a server, and changes to it are found.",
        (
            f"{AUDIT}::test_resources_prompts_and_completions_are_written_down_before_their_answer",
            f"{AUDIT}::test_there_is_room_for_two_million_calls",
            f"{AUDIT}::test_a_line_that_was_changed_taken_out_or_put_in_is_found",
            f"{TOKENS}::test_wrong_tokens_are_audited_together",
        ),
    ),
    (
        "reviewed.20-tokens",
        "Weak tokens are refused beyond this machine, and wrong ones are slowed down.",
        (
            f"{TOKENS}::test_a_weak_token_is_refused_beyond_this_machine",
            f"{TOKENS}::test_wrong_tokens_are_slowed_down_by_address",
        ),
    ),
    (
        "reviewed.21-rest",
        "Other pages restart nothing, a client's own _meta reaches no server, links stay with their server.",
        (
            f"{ORIGINS}::test_a_page_of_another_port_restarts_nothing",
            f"{META}::test_what_a_client_adds_of_its_own_reaches_no_server",
            f"{LINKS}::test_a_link_to_an_address_of_ours_is_the_linking_servers_own",
            f"{CALLS}::test_a_misspelt_argument_is_told_without_naming_what_the_gateway_is_made_of",
        ),
    ),
    issue=REVIEWED,
)

LOCKED = promises(
    "4 A lock file",
    (
        "reviewed.lock",
        "Development and CI install exact versions by hash, audited where a database can be reached.",
        (
            f"{LOCK}::test_every_dependency_is_locked_to_versions_within_its_bounds",
            f"{LOCK}::test_a_lock_file_has_an_exact_version_and_hashes_for_each_package_and_no_address",
            f"{LOCK}::test_each_engine_of_scripts_is_pinned_to_one_version",
            f"{LOCK}::test_a_known_vulnerability_fails_the_build_and_is_named",
            ".ci/run",
        ),
    ),
    issue=REVIEWED,
)

SHOWN = promises(
    "must show",
    (
        "reviewed.stalls",
        "Hostile inputs of every kind hold up nobody.",
        ("benchmarks/stalls.py", "benchmarks/attacks.py"),
    ),
    (
        "reviewed.fuzz",
        "Generated schemas, values, paths and results make no long pause.",
        (
            f"{PAUSES}::test_every_case_is_answered_within_bounds",
            f"{PAUSES}::test_a_schema_of_lists_of_itself_is_answered_at_any_depth",
        ),
    ),
    issue=REVIEWED,
)

PROMISES = (*STALLS, *STATES, *FINDINGS, *LOCKED, *SHOWN)
