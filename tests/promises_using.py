"""What is promised to whoever begins: adoption, other kinds of servers, a library, documentation,
speed, peers."""

from tests.promises import promises

USING = "issue 7, In use in a minute"

ADOPT, FOUND = "tests/adoption/test_adopt_command.py", "tests/adoption/test_adopt_finding.py"
SECRETS, WRITTEN = "tests/adoption/test_adopt_secrets.py", "tests/adoption/test_adopt_writing.py"
CLIENTS, INSTALL = "tests/adoption/test_clients.py", "tests/adoption/test_install_command.py"
FILES, EDITING = "tests/adoption/test_install_files.py", "tests/adoption/test_install_editing.py"
OPENAPI, REQUESTS = (
    "tests/upstream/test_openapi_tools.py",
    "tests/upstream/test_openapi_requests.py",
)
ANSWERS, API_GATEWAY = (
    "tests/upstream/test_openapi_answers.py",
    "tests/upstream/test_openapi_gateway.py",
)
COMMANDS, NASTY = "tests/upstream/test_commands.py", "tests/upstream/test_commands_fuzz.py"
COMMAND_GATEWAY = "tests/upstream/test_commands_gateway.py"
EMBEDDED, FORMATS, AGENTS = (
    "tests/embedding/test_gateway.py",
    "tests/embedding/test_formats.py",
    "tests/embedding/test_agents.py",
)
EXAMPLES, REFERENCE, SITE = (
    "tests/docs/test_examples.py",
    "tests/docs/test_reference.py",
    "tests/docs/test_site.py",
)

ADOPTION = promises(
    "1 Adoption",
    (
        "adopt.found",
        "Servers of every named client are found, on every system, with what they cost.",
        (
            f"{FOUND}::test_every_server_of_every_client_is_found_on_every_system",
            f"{CLIENTS}::test_other_files_are_where_the_system_keeps_settings",
            f"{ADOPT}::test_servers_are_started_counted_and_adopted",
            f"{FOUND}::test_any_file_can_be_named_and_then_only_that_is_read",
        ),
    ),
    (
        "adopt.chosen",
        "A person chooses, duplicates are one, and running it again changes nothing.",
        (
            f"{ADOPT}::test_a_person_at_a_terminal_chooses",
            f"{FOUND}::test_the_same_server_in_several_clients_is_one",
            f"{WRITTEN}::test_adopting_twice_changes_nothing",
            f"{WRITTEN}::test_a_configuration_keeps_a_backup_and_its_link",
        ),
    ),
    (
        "adopt.secrets",
        "No secret is left in the configuration; all of them are in a file for its owner alone.",
        (
            f"{SECRETS}::test_no_secret_is_left_in_the_configuration_and_all_servers_get_what_they_got",
            f"{ADOPT}::test_secrets_are_written_for_their_owner_alone",
            f"{SECRETS}::test_any_name_and_value_survives_being_adopted",
        ),
    ),
    (
        "install.both-ways",
        "A client is pointed at Portico after it was shown what would change, and every byte can be put back.",
        (
            f"{INSTALL}::test_without_write_only_the_difference_is_shown",
            f"{INSTALL}::test_write_changes_the_file_twice_changes_nothing_and_uninstall_restores_it",
            f"{INSTALL}::test_the_exposure_is_the_clients_unless_somebody_says_otherwise",
            f"{INSTALL}::test_the_client_can_start_what_was_written_for_it",
        ),
    ),
    issue=USING,
)

KINDS = promises(
    "2 OpenAPI and command backends",
    (
        "openapi.tools",
        "Operations are tools: names, parameters, bodies, references, allOf, servers.",
        (
            f"{OPENAPI}::test_every_operation_is_a_tool_with_a_name_of_its_own",
            f"{OPENAPI}::test_what_allof_brings_together_are_arguments_and_what_is_read_only_is_none",
            f"{OPENAPI}::test_definitions_that_refer_to_themselves_are_kept_once_and_only_those_that_are_reached",
            f"{OPENAPI}::test_servers_have_their_variables_filled_in",
            f"{ANSWERS}::test_a_list_is_structured_and_says_where_the_next_page_is",
        ),
    ),
    (
        "openapi.credentials",
        "Credentials come from the configuration and go to the API alone.",
        (
            f"{ANSWERS}::test_an_operation_on_another_host_is_not_called",
            f"{ANSWERS}::test_a_redirect_is_followed_at_home_and_shown_when_it_leads_away",
            f"{ANSWERS}::test_refused_access_says_what_to_configure",
        ),
    ),
    (
        "commands.tools",
        "A command-line program is a tool with typed arguments, and no shell reads it.",
        (
            f"{COMMANDS}::test_a_command_is_listed_with_typed_parameters_and_true_annotations",
            f"{COMMANDS}::test_a_value_that_would_be_an_option_is_refused_with_advice",
            f"{COMMANDS}::test_a_program_that_takes_too_long_is_ended_with_all_its_children",
        ),
    ),
    (
        "kinds.same-pipeline",
        "Both go the way of every other server: found, described, checked, called, in scripts.",
        (
            f"{API_GATEWAY}::test_an_api_is_searched_described_and_called_like_any_server",
            f"{COMMAND_GATEWAY}::test_a_command_is_found_described_and_called",
            f"{COMMAND_GATEWAY}::test_a_script_calls_commands_like_any_tool",
        ),
    ),
    issue=USING,
)

LIBRARY = promises(
    "3 Python API",
    (
        "library.asks",
        "An agent in Python searches, describes, calls and runs scripts through the same rooms as a client.",
        (
            f"{EMBEDDED}::test_a_search_gives_typed_results_best_first_and_the_text_an_agent_would_read",
            f"{EMBEDDED}::test_a_call_gives_text_and_data_and_repairs_what_is_certain",
            f"{EMBEDDED}::test_a_script_and_a_workflow_run_through_the_same_tools",
            f"{EMBEDDED}::test_calls_are_counted_and_audited_like_a_clients",
            "tests/embedding/test_sync.py::test_everything_can_be_asked_without_a_loop",
            "tests/embedding/test_importing.py::test_importing_the_package_imports_nothing_else",
        ),
    ),
    (
        "library.formats",
        "Definitions in the formats of Anthropic, OpenAI and LangChain, and answers to their calls.",
        (
            f"{FORMATS}::test_a_models_call_is_answered_in_its_own_format",
            f"{AGENTS}::test_an_agent_on_the_messages_api_finds_and_calls_a_tool",
            f"{AGENTS}::test_langchains_tools_call_the_gateway_themselves",
            "tests/embedding/test_fleet_formats.py::test_every_provider_takes_every_tool_of_the_fleet",
        ),
    ),
    issue=USING,
)

TOLD = promises(
    "4 Documentation, 5 README",
    (
        "docs.site",
        "The documentation is a site that builds without a warning and leads everywhere.",
        (
            f"{SITE}::test_every_page_is_in_the_site_and_in_its_navigation",
            "tests/docs/test_links.py::test_every_page_can_be_found_from_the_first",
            ".ci/run",
        ),
    ),
    (
        "docs.true",
        "Examples run, and what is for looking up is written from the code.",
        (
            f"{EXAMPLES}::test_every_runnable_block_runs",
            f"{EXAMPLES}::test_nothing_that_a_newcomer_copies_is_left_untried",
            f"{REFERENCE}::test_a_generated_page_is_as_the_code_is",
        ),
    ),
    (
        "readme.pictures",
        "The pictures are made by the commands that measured.",
        ("benchmarks/tokens.py", "benchmarks/recording.py", ".ci/run"),
    ),
    issue=USING,
)

FAST = promises(
    "6 Speed, 7 Peers",
    (
        "fast.hop",
        "A call costs little more than without us, and a handshake-era answer no stream that it does not need.",
        (
            "benchmarks/latency.py",
            "tests/server/test_prompt_answers.py::test_an_answer_without_anything_before_it_is_plain_json",
            "tests/server/test_prompt_answers.py::test_what_is_said_before_the_answer_comes_on_a_stream_in_order",
        ),
    ),
    (
        "fast.scale",
        "Searching, starting and memory, with a fleet and with a hundred thousand tools.",
        ("benchmarks/scale.py", "benchmarks/startup.py", "benchmarks/footprint.py"),
    ),
    ("fast.peers", "Peers at their best in the same run.", ("benchmarks/peers.py", ".ci/run")),
    issue=USING,
)

MUST_SHOW = promises(
    "must show",
    (
        "shown.clients",
        "Files of every named client, however they are written, come back byte for byte; foreign ones stay whole.",
        (
            f"{FILES}::test_a_real_file_gets_the_entry_keeps_the_rest_and_is_restored_byte_for_byte",
            f"{FILES}::test_a_broken_or_foreign_file_is_refused_with_its_line_and_left_alone",
            f"{FILES}::test_a_read_only_file_is_left_alone_even_for_root",
            f"{EDITING}::test_installing_and_uninstalling_leaves_any_file_as_it_was",
        ),
    ),
    (
        "shown.apis",
        "Petstore and large public specifications load, and calls reach a server as they were meant.",
        (
            f"{ANSWERS}::test_a_pet_is_made_read_and_removed",
            "tests/upstream/test_openapi_specs.py::test_a_large_description_becomes_tools_that_every_client_can_take",
            f"{REQUESTS}::test_whatever_is_given_is_what_is_received",
        ),
    ),
    (
        "shown.injection",
        "Whatever is given to a command is one word of it.",
        (
            f"{NASTY}::test_the_words_are_the_template_with_the_values_and_nothing_else",
            f"{NASTY}::test_nothing_nasty_is_run_and_every_word_arrives_as_it_was_written",
        ),
    ),
    (
        "shown.headings",
        "Every setting, meta-tool and metric has its heading.",
        (
            f"{REFERENCE}::test_every_setting_has_its_heading",
            f"{REFERENCE}::test_every_meta_tool_has_its_heading_and_an_example",
            f"{REFERENCE}::test_every_metric_has_its_heading",
        ),
    ),
    issue=USING,
)

PROMISES = (*MUST_SHOW, *ADOPTION, *KINDS, *LIBRARY, *TOLD, *FAST)
