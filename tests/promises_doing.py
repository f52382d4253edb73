"""What is promised of doing: the pipeline, results, scripts, workflows, instances, and tools listed
for an intent."""

from tests.promises import Promise, promises

DOING = "issue 5, Doing"

PIPELINE, CHANGES, CACHE = (
    f"tests/execution/test_{name}.py" for name in ("pipeline", "changes", "cache")
)
REPAIR, LIMITING, RETRYING = (
    f"tests/execution/test_{name}.py" for name in ("repair", "limiting", "retrying")
)
LEARNED, ENDURANCE = "tests/execution/test_learned.py", "tests/execution/test_endurance.py"
CODE, HOSTILE = "tests/interaction/test_run_code.py", "tests/interaction/test_hostile_scripts.py"
BINDING, HINTS, MEMORY = (
    f"tests/execution/scripting/test_{name}.py" for name in ("binding", "hints", "memory")
)
JAIL, WORKERS = "tests/execution/sandbox/test_jail.py", "tests/execution/sandbox/test_workers.py"
CHECKING, RUNNING, RESUMING, PLANNING, REMEMBERED = (
    f"tests/execution/workflow/test_{name}.py"
    for name in ("checking", "running", "resuming", "suggesting", "remembered")
)
ISOLATION, SEMANTIC = "tests/interaction/test_isolation.py", "tests/interaction/test_semantic.py"
GIVING_UP = (
    "tests/interaction/test_giving_up.py::test_what_a_client_cancels_is_cancelled_at_the_server",
    "tests/interaction/test_giving_up.py::test_a_client_that_hangs_up_is_gone_for_the_server_too",
    "tests/interaction/test_giving_up.py::test_a_client_that_closes_its_pipe_is_gone_for_the_server_too",
    "tests/interaction/test_giving_up.py::test_a_server_behind_http_sees_it_too",
)
FLOW = "tests/interaction/test_run_workflow.py"
SAME_ERRORS = "tests/interaction/test_same_errors.py"
ROWS, ROWS_SCRIPT = "tests/seeds/test_doing_rows.py", "tests/seeds/test_script_rows.py"
ROWS_ISOLATION = "tests/seeds/test_isolation_rows.py"

CALLS = promises(
    "1 One pipeline",
    (
        "call.repair",
        "Mistakes that can only be meant in one way are repaired and said; any other is refused with the parameters.",
        (
            f"{REPAIR}::test_what_must_have_been_meant_is_sent",
            f"{REPAIR}::test_what_could_be_meant_in_two_ways_or_in_none_is_left_alone",
            f"{REPAIR}::test_the_tools_of_real_servers_survive_every_mistake_and_most_are_understood",
            f"{PIPELINE}::test_repaired_arguments_are_sent_and_said",
            f"{PIPELINE}::test_arguments_that_cannot_be_repaired_are_refused_before_anything_starts",
        ),
    ),
    (
        "call.limits",
        "A server is asked no more at once, and no faster, than it may be; who waits is served in turn.",
        (
            f"{LIMITING}::test_no_more_than_so_many_are_inside_and_the_first_who_came_is_next",
            f"{LIMITING}::test_so_many_begin_at_once_and_then_so_many_in_a_second",
            f"{PIPELINE}::test_a_call_too_many_is_busy_and_a_cancelled_one_gives_its_place_back",
            f"{PIPELINE}::test_waiting_takes_from_the_time_a_call_may_take",
        ),
    ),
    (
        "call.retry",
        "Only tools that are read-only or idempotent run twice, and only where the conversation was lost.",
        (
            f"{RETRYING}::test_tools_that_may_run_twice_are_asked_again_once",
            f"{PIPELINE}::test_a_lost_conversation_is_begun_again_for_a_tool_that_reads",
            f"{PIPELINE}::test_a_tool_that_may_change_things_is_not_run_twice",
        ),
    ),
    (
        "call.output",
        "An answer that is not what its tool declares is passed on, and says so.",
        (f"{PIPELINE}::test_an_answer_that_is_not_what_was_declared_is_passed_on_and_says_so",),
    ),
    (
        "call.errors",
        "Every error says its kind, what to do, whether to try again, and the parameters where they were wrong.",
        (
            f"{ROWS}::test_d3_every_error_says_its_kind_what_to_do_and_whether_to_try_again",
            f"{SAME_ERRORS}::test_by_call_tool",
            f"{SAME_ERRORS}::test_in_a_script",
            f"{SAME_ERRORS}::test_in_a_workflow",
        ),
    ),
    (
        "call.spans",
        "Every execution is a span, without arguments or results.",
        (f"{ROWS_SCRIPT}::test_d5_every_execution_is_a_span_without_arguments_or_results",),
    ),
    issue=DOING,
)

KEPT = promises(
    "2 Cache, 3 Result handles, 4 Shapes",
    (
        "cache.changes",
        "A definition that changed is noticed at the call, its caller told once, and what was kept is dropped.",
        (
            f"{ROWS}::test_e5_a_definition_that_changed_is_noticed_by_the_call_and_told_once",
            f"{ROWS}::test_e5_what_was_kept_of_the_old_definition_is_not_given_again",
            f"{CHANGES}::test_a_call_that_still_fits_is_made_and_told_once_to_who_saw_the_tool_before",
        ),
    ),
    (
        "cache.flight",
        "Any number of identical calls at once are one, and memory stays as it was.",
        (
            f"{CACHE}::test_identical_calls_at_the_same_time_are_one",
            f"{ENDURANCE}::test_any_number_of_identical_calls_at_once_reach_the_server_once",
            f"{ENDURANCE}::test_calls_of_every_kind_leave_no_object_behind",
            f"{CACHE}::test_a_hundred_thousand_calls_leave_memory_as_it_was",
            "benchmarks/endurance.py",
        ),
    ),
    (
        "results.scripts",
        "Scripts get results whole.",
        (f"{CODE}::test_a_script_gets_results_whole",),
    ),
    (
        "shapes.kept",
        "Shapes seen in answers are kept by the definition's hash, over a restart, and hold nobody's data.",
        (
            f"{LEARNED}::test_what_was_learnt_is_known_after_a_restart",
            f"{LEARNED}::test_nobody_s_data_is_written",
            "tests/interaction/test_learned_shapes.py::test_a_learned_shape_is_described_after_a_restart",
        ),
    ),
    issue=DOING,
)

SCRIPTS = promises(
    "5 run_code, 6 State between scripts",
    (
        "code.languages",
        "Python, Lua, JavaScript and TypeScript call tools as functions of their servers.",
        (
            f"{CODE}::test_a_tool_is_a_function_of_its_server",
            f"{CODE}::test_the_last_expression_is_the_answer",
            f"{CODE}::test_names_that_are_no_identifiers_are_called_as_such",
            "tests/docs/test_examples.py::test_every_runnable_block_runs",
        ),
    ),
    (
        "code.parallel",
        "Calls start when they are made, so that several run together.",
        (f"{CODE}::test_calls_made_before_the_first_is_awaited_run_together",),
    ),
    (
        "code.pipeline",
        "Every inner call goes through the pipeline, as its caller's own.",
        (
            f"{CODE}::test_every_call_is_recorded_under_its_caller",
            f"{CODE}::test_a_profile_s_scripts_see_what_the_profile_sees",
            f"{CODE}::test_an_error_of_a_tool_can_be_caught_and_has_the_parameters",
        ),
    ),
    (
        "code.inside",
        "Search, descriptions and calls by name are there inside.",
        (f"{CODE}::test_search_describe_and_call_are_there_inside",),
    ),
    (
        "code.help",
        "Errors name the script's line and what to do about the usual mistakes.",
        (
            f"{CODE}::test_a_wrong_name_gets_the_nearest_and_the_line",
            f"{CODE}::test_a_call_nobody_awaits_is_cancelled_and_said",
            f"{HINTS}::test_a_forgotten_await_is_shown_in_the_script_s_own_language",
            f"{HINTS}::test_a_shadowed_result_is_seen",
            f"{HINTS}::test_a_misspelt_server_gets_the_nearest",
            f"{HINTS}::test_every_limit_comes_with_advice",
        ),
    ),
    (
        "code.bound",
        "Only the tools that a script mentions are bound.",
        (f"{BINDING}::test_only_what_a_script_mentions_is_bound",),
    ),
    (
        "code.limits",
        "Time, computing, memory, calls, calls at once and output are limited, and nothing is left behind.",
        (
            f"{CODE}::test_calls_are_limited_in_number_and_at_once",
            f"{WORKERS}::test_a_script_that_computes_too_long_is_killed_and_the_next_one_runs",
            f"{WORKERS}::test_computing_while_a_call_is_under_way_is_computing_too",
            f"{HOSTILE}::test_it_is_contained_and_the_next_script_runs",
            f"{HOSTILE}::test_nothing_is_left_of_them",
        ),
    ),
    (
        "code.jail",
        "A worker reaches no file, socket, process, signal or environment.",
        (
            f"{JAIL}::test_what_reaches_for_the_machine_is_refused",
            f"{JAIL}::test_what_only_an_attack_would_try_ends_its_process",
            f"{JAIL}::test_nothing_of_the_gateways_environment_is_in_a_worker",
        ),
    ),
    (
        "code.state",
        "What a script stores is there for the same client's next, bounded and for a while.",
        (
            f"{CODE}::test_what_is_stored_is_there_for_the_next_script_of_the_same_client_alone",
            f"{MEMORY}::test_what_nobody_adds_to_goes_after_a_while",
            f"{MEMORY}::test_what_is_too_much_is_refused_and_the_rest_is_kept_as_it_was",
        ),
    ),
    issue=DOING,
)

WORKFLOWS = promises(
    "7 run_workflow",
    (
        "flow.checked",
        "A workflow is checked before anything runs, and every problem told at once.",
        (
            f"{CHECKING}::test_every_problem_is_told_at_once_with_its_step",
            f"{CHECKING}::test_a_circle_is_shown",
            f"{CHECKING}::test_nothing_runs_when_anything_is_wrong",
        ),
    ),
    (
        "flow.runs",
        "Every step runs once, after all that it depends on; independent ones run in parallel.",
        (
            f"{RUNNING}::test_every_step_runs_once_and_after_all_that_it_depends_on",
            f"{RUNNING}::test_independent_steps_run_at_the_same_time_and_no_more_than_the_bound",
        ),
    ),
    (
        "flow.resume",
        "A failure says what ran, and `resume` goes on from there and runs nothing twice.",
        (
            f"{RESUMING}::test_resume_runs_what_failed_and_what_waits_for_it_and_nothing_twice",
            f"{FLOW}::test_a_step_corrected_with_resume_is_followed_by_those_that_wait_for_it",
        ),
    ),
    (
        "flow.approval",
        "What destroys stops for approval, of exactly what was shown.",
        (
            f"{RESUMING}::test_a_destructive_step_stops_for_approval_while_all_else_runs_and_resume_approves_it",
            f"{RESUMING}::test_what_would_do_something_else_by_then_is_asked_again",
            f"{FLOW}::test_steps_run_by_every_door_and_an_approval_is_a_resume",
        ),
    ),
    (
        "flow.plan",
        "An intent gives a plan of real tools, joined where that is sure, with what is missing marked.",
        (
            f"{PLANNING}::test_an_earlier_answer_fills_what_a_later_step_must_have",
            f"{PLANNING}::test_what_nobody_said_is_an_input_with_its_type_and_description",
            f"{PLANNING}::test_a_clause_that_nothing_serves_is_named_with_what_comes_nearest",
            f"{FLOW}::test_an_intent_becomes_a_plan_that_can_be_passed_back_and_run",
            f"{FLOW}::test_a_plan_runs_at_once_only_when_it_is_ready_and_asked_for",
            "benchmarks/planning.py",
        ),
    ),
    (
        "flow.remembered",
        "Plans that worked are offered again, without anything that was said in them.",
        (
            f"{REMEMBERED}::test_a_plan_that_worked_is_offered_again_with_what_is_said_now",
            f"{REMEMBERED}::test_nothing_that_was_said_is_kept",
        ),
    ),
    issue=DOING,
)

INSTANCES = promises(
    "8 Isolation, 9 Exposure semantic",
    (
        "isolation.own",
        "Each client has its own instance of an isolated server, in both eras, bounded and stopped when idle.",
        (
            f"{ISOLATION}::test_each_client_over_a_pipe_counts_for_itself_and_takes_its_instance_along",
            f"{ISOLATION}::test_each_session_over_http_counts_for_itself_and_takes_its_instance_along",
            f"{ISOLATION}::test_a_modern_client_over_http_is_told_a_handle_and_goes_on_by_it",
            f"{ISOLATION}::test_over_the_bound_the_longest_unused_goes_and_the_others_stay",
            f"{ISOLATION}::test_an_idle_instance_is_stopped_while_another_lives",
        ),
    ),
    (
        "semantic.intent",
        "`semantic` lists the tools for an intent beside the meta-tools, and `tools/list` takes a query.",
        (
            f"{SEMANTIC}::test_the_tools_for_the_intent_are_listed_whole_beside_the_meta_tools_and_can_be_called",
            f"{SEMANTIC}::test_a_query_lists_what_serves_it_and_a_plain_list_stays_as_it_was",
        ),
    ),
    issue=DOING,
)

SHOWN = promises(
    "must show",
    (
        "doing.speed",
        "A warm script that does nothing takes at most 3 ms, ten calls at once at most twice one.",
        ("benchmarks/sandbox.py", "benchmarks/results.py"),
    ),
    (
        "doing.attacks",
        "Hostile scripts are contained and hardly felt by others.",
        (f"{HOSTILE}::test_there_are_enough_of_them_in_every_language", "benchmarks/attacks.py"),
    ),
    (
        "doing.giving-up",
        "Whoever gives up a call, a script or a workflow ends it, its upstream hears of it, and nothing is left.",
        (*GIVING_UP, f"{CODE}::test_a_client_that_gives_up_ends_the_script_and_its_calls"),
    ),
    (
        "doing.rows",
        "Rows A13, C5 to C7, D3 to D6 and E2 to E5, and seed 002's examples as printed.",
        (
            f"{ROWS_SCRIPT}::test_a13_typescript_chains_tools",
            f"{ROWS_SCRIPT}::test_c5_a_lua_script_runs_as_printed_with_text_and_structured_content",
            f"{ROWS_SCRIPT}::test_c6_names_become_identifiers_as_printed",
            f"{ROWS_ISOLATION}::test_c7_each_client_has_its_own_state_in_the_server",
            f"{ROWS}::test_d3_arguments_are_checked_repaired_where_that_is_certain_and_the_answer_is_checked_too",
            f"{ROWS}::test_d4_any_number_of_identical_calls_at_once_are_one",
            f"{ROWS_SCRIPT}::test_d6_e4_code_runs_in_a_sandbox_and_chains_tools",
            "tests/seeds/test_workflow_rows.py::test_e3_an_intent_finds_its_tools_suggests_the_steps_and_runs_them",
            f"{ROWS_ISOLATION}::test_e2_each_exposure_lists_its_own_and_a_query_what_serves_it",
        ),
    ),
    issue=DOING,
)

PROMISES: tuple[Promise, ...] = (*CALLS, *KEPT, *SCRIPTS, *WORKFLOWS, *INSTANCES, *SHOWN)
