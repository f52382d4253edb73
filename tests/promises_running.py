"""What is promised of a gateway in use: servers and clients that misbehave, other configurations,
and being watched."""

from tests.promises import promises

RUNNING = "issue 6, Upstreams and clients that misbehave"

SUPERVISION, BREAKER = "tests/upstream/test_supervision.py", "tests/upstream/test_breaker.py"
RESTART = "tests/cli/test_restart.py"
CHANGES, APPLYING, RELOADING = (
    "tests/app/test_changes.py",
    "tests/app/test_applying.py",
    "tests/cli/test_reloading.py",
)
QUESTIONS, PARKED = (
    "tests/interaction/test_questions_across_eras.py",
    "tests/interaction/test_parked_questions.py",
)
WATCHED, ANNOUNCED = (
    "tests/interaction/test_subscriptions.py",
    "tests/interaction/test_announcements.py",
)
ADMISSION, SLOW = "tests/server/test_admission.py", "tests/server/test_slow_clients.py"
DEADLINES, DRAINING = "tests/interaction/test_deadlines.py", "tests/cli/test_draining.py"
MATRIX, NEVER_WELL = "tests/faults/test_matrix.py", "tests/faults/test_never_well.py"
FUZZ = "tests/fuzz"
DOCTOR = "tests/cli/test_doctor.py"
METRICS, MONITORING, READY = (
    "tests/observability/test_metrics.py",
    "tests/server/test_monitoring.py",
    "tests/lifetime/test_readiness.py",
)
AUDIT, TRACING, LOGS = (
    "tests/observability/test_audit.py",
    "tests/observability/test_tracing.py",
    "tests/cli/test_logs.py",
)

SUPERVISOR = promises(
    "1 Supervisor",
    (
        "life.breaker",
        "A server that fails is tried again later and later, by one call at a time, while all others are answered.",
        (
            f"{BREAKER}::test_pauses_double_up_to_the_longest",
            f"{BREAKER}::test_chance_makes_a_pause_shorter_and_never_longer",
            f"{SUPERVISION}::test_of_a_second_try_there_is_one_and_everyone_else_is_answered_at_once",
            f"{SUPERVISION}::test_who_is_wanted_comes_back_by_itself_once_the_pause_is_over",
        ),
    ),
    (
        "life.quarantine",
        "A command that keeps dying is left alone with its last words shown, until its time is up or a person says so.",
        (
            f"{SUPERVISION}::test_a_command_that_cannot_be_started_is_left_alone_and_its_last_words_are_shown",
            f"{SUPERVISION}::test_a_command_that_dies_of_every_call_is_not_restarted_for_ever",
            f"{SUPERVISION}::test_a_server_elsewhere_is_never_put_in_quarantine",
            f"{SUPERVISION}::test_a_restart_ends_a_quarantine_and_says_when_it_does_not_help",
        ),
    ),
    (
        "life.health",
        "A server that no longer answers is found out and started anew; one that is busy is left in peace.",
        (
            f"{SUPERVISION}::test_a_quiet_server_is_asked_how_it_is_in_the_words_of_its_era",
            f"{SUPERVISION}::test_a_server_that_no_longer_answers_is_started_anew_and_says_why",
            f"{SUPERVISION}::test_a_server_that_is_busy_with_a_call_is_not_asked_and_not_killed",
        ),
    ),
    (
        "life.replacing",
        "A server that grows too large, or is to be started anew, is replaced after the calls it works on.",
        (
            f"{SUPERVISION}::test_a_command_that_has_grown_too_large_is_replaced_after_its_calls",
            f"{SUPERVISION}::test_calls_under_way_end_on_the_old_one_while_new_ones_go_to_the_new_one",
            f"{RESTART}::test_the_running_gateway_starts_it_anew_and_status_tells_of_a_quarantine",
            f"{RESTART}::test_without_a_gateway_those_on_stdio_are_told",
        ),
    ),
    (
        "life.starts",
        "Only so many servers are started at a time, and one that hangs keeps no other from it for long.",
        (
            f"{SUPERVISION}::test_only_so_many_servers_are_started_by_calls_at_the_same_time",
            f"{SUPERVISION}::test_starts_that_hang_give_up_their_place_and_a_start_nobody_called_needs_none",
        ),
    ),
    issue=RUNNING,
)

RELOAD = promises(
    "2 Hot reload",
    (
        "reload.only-what-changed",
        "A changed configuration is taken over while it runs: only the servers that changed are started anew.",
        (
            f"{APPLYING}::test_only_the_server_that_changed_is_started_anew",
            f"{APPLYING}::test_an_added_server_can_be_called_and_a_removed_one_says_it_is_not_there",
            f"{CHANGES}::test_every_key_of_a_server_is_known_to_one_side_or_the_other",
            f"{RELOADING}::test_servers_and_profiles_come_and_go_while_it_serves",
        ),
    ),
    (
        "reload.in-flight",
        "Calls under way end on the server they were begun with.",
        (
            f"{APPLYING}::test_a_call_under_way_ends_on_the_old_server_while_new_ones_go_to_the_new",
            f"{APPLYING}::test_a_call_under_way_ends_even_if_its_server_is_taken_away",
            f"{APPLYING}::test_many_changes_while_calls_run_lose_no_call",
        ),
    ),
    (
        "reload.refused",
        "A broken file is refused with its error, and the running configuration stays.",
        (f"{RELOADING}::test_a_broken_file_is_refused_with_its_error_and_a_mended_one_taken",),
    ),
    issue=RUNNING,
)

RELAYS = promises(
    "3 Relays",
    (
        "relay.questions",
        "A client of either era answers what a server of either era asks, by any way it calls the tool.",
        (
            f"{QUESTIONS}::test_a_client_answers_what_a_server_asks",
            f"{QUESTIONS}::test_it_answers_through_call_tool_too",
            f"{QUESTIONS}::test_it_answers_what_a_script_runs_into",
            f"{QUESTIONS}::test_it_answers_what_the_steps_of_a_workflow_ask_all_at_once",
        ),
    ),
    (
        "relay.state",
        "What a client brings back is signed, and of use to its caller, its request and its time alone.",
        (
            f"{PARKED}::test_a_state_that_was_changed_is_refused_and_no_server_hears_of_it",
            f"{PARKED}::test_a_state_is_of_use_to_its_caller_and_its_request_alone",
            f"{PARKED}::test_a_state_is_used_once",
            f"{PARKED}::test_a_seal_is_bound_to_everything_it_is_given",
            f"{PARKED}::test_a_call_that_nobody_comes_back_to_is_given_up_and_its_server_told",
        ),
    ),
    (
        "relay.incapable",
        "A client that cannot be asked is a clear error, never a wait.",
        (
            f"{QUESTIONS}::test_a_client_that_offers_nothing_is_told_what_it_lacks",
            f"{QUESTIONS}::test_a_client_of_forms_alone_is_not_sent_anywhere",
        ),
    ),
    (
        "relay.own-client",
        "Progress, log messages and cancellation are between a server and the very client whose call caused them.",
        (
            f"{QUESTIONS}::test_progress_of_two_clients_at_once_reaches_each_its_own",
            f"{QUESTIONS}::test_log_messages_reach_the_client_that_called_and_no_other",
            f"{QUESTIONS}::test_a_client_that_can_be_asked_can_cancel_its_call",
        ),
    ),
    (
        "relay.subscriptions",
        "Resources are watched across eras, by the URI the client knows, and the last to leave unsubscribes.",
        (
            f"{WATCHED}::test_clients_of_both_eras_watch_a_real_server_of_either",
            f"{WATCHED}::test_a_server_is_told_by_the_first_and_left_by_the_last_of_either_era",
            f"{WATCHED}::test_a_modern_client_is_told_what_it_will_not_hear_of",
        ),
    ),
    (
        "relay.lists",
        "A changed list reaches clients soon; a storm of changes is few listings and ends with the last.",
        (
            f"{ANNOUNCED}::test_a_changed_list_reaches_clients_of_both_eras",
            f"{WATCHED}::test_a_storm_of_list_changes_is_few_listings_and_few_notifications_and_ends_with_the_last",
            f"{WATCHED}::test_a_server_that_is_slow_to_list_keeps_no_others_news_back",
        ),
    ),
    issue=RUNNING,
)

LIMITS = promises(
    "4 Backpressure and limits",
    (
        "limits.admission",
        "Whoever is too many is told at once when to come again; clients take turns, and looking around is free.",
        (
            f"{ADMISSION}::test_who_is_too_many_is_told_at_once_when_to_come_again",
            f"{ADMISSION}::test_one_client_s_flood_keeps_no_other_from_its_turn",
            f"{ADMISSION}::test_looking_around_is_never_held_up_by_calls",
            f"{ADMISSION}::test_who_goes_while_it_waits_leaves_the_line_and_its_call_is_never_begun",
        ),
    ),
    (
        "limits.slow-clients",
        "Clients that drip, never read or send without end are ended, and nobody else notices.",
        (
            f"{SLOW}::test_a_request_that_drips_is_ended",
            f"{SLOW}::test_a_client_that_does_not_read_is_hung_up_on_and_nobody_else_notices",
            f"{SLOW}::test_a_body_that_is_too_large_is_refused_before_it_has_arrived",
        ),
    ),
    (
        "limits.deadlines",
        "What a script or a line took is taken from the time of its calls, and time that is over cancels them.",
        (
            f"{DEADLINES}::test_when_its_time_is_over_the_call_is_cancelled_at_its_server",
            f"{DEADLINES}::test_what_a_request_waited_at_the_door_its_call_has_less",
        ),
    ),
    (
        "limits.drain",
        "Told to stop, it lets calls under way end, begins no others, and does not wait for ever.",
        (
            f"{DRAINING}::test_a_call_under_way_is_answered_and_no_other_begun",
            f"{DRAINING}::test_a_call_that_takes_too_long_is_not_waited_for",
            f"{DRAINING}::test_on_stdio_a_call_under_way_is_answered_too",
        ),
    ),
    issue=RUNNING,
)

EXAMINED = promises(
    "5 Doctor",
    (
        "doctor.planted",
        "Every planted mistake is found, with its place and its remedy; a healthy set-up has nothing broken.",
        (
            f"{DOCTOR}::test_every_planted_mistake_is_found_with_its_place_and_remedy",
            f"{DOCTOR}::test_a_broken_set_up_ends_with_a_code_that_says_so",
            f"{DOCTOR}::test_a_healthy_set_up_has_nothing_broken",
            f"{DOCTOR}::test_the_shape_of_the_json_is_fixed",
            f"{DOCTOR}::test_nothing_secret_is_shown",
        ),
    ),
    issue=RUNNING,
)

OBSERVED = promises(
    "6 Observability",
    (
        "observed.metrics",
        "Calls, failures by kind, latencies, states, tokens and sandboxes are counted; no server's word is a label.",
        (
            f"{METRICS}::test_calls_are_counted_by_server_and_by_how_they_ended",
            f"{METRICS}::test_what_a_server_says_never_becomes_a_label",
            "tests/docs/test_reference.py::test_every_metric_has_its_heading",
            f"{MONITORING}::test_figures_move_by_what_clients_do",
        ),
    ),
    (
        "observed.ready",
        "Whoever lives says so; work is taken while it serves, and a server that is down makes nothing else unready.",
        (
            f"{MONITORING}::test_whoever_lives_says_so_whatever_else_is_wrong",
            f"{MONITORING}::test_work_may_be_sent_while_it_serves_and_nothing_it_needs_is_broken",
            f"{READY}::test_a_server_in_trouble_is_named_and_the_gateway_still_ready",
        ),
    ),
    (
        "observed.traces",
        "Request, execution and upstream request are one trace, carried in messages and headers.",
        (
            f"{TRACING}::test_request_execution_and_upstream_request_are_one_trace",
            f"{TRACING}::test_a_context_in_the_http_headers_is_taken_where_the_message_has_none",
        ),
    ),
    (
        "observed.audit",
        "Every call has its line in the audit log when its answer leaves, and no secret is in it.",
        (
            f"{AUDIT}::test_the_line_is_there_when_the_client_has_its_answer",
            f"{AUDIT}::test_every_way_to_end_has_its_line",
            f"{AUDIT}::test_no_planted_secret_is_in_any_line",
        ),
    ),
    (
        "observed.logs",
        "Logs are lines for people or JSON, hold no secret, and nobody else can begin one.",
        (
            f"{LOGS}::test_no_line_holds_a_planted_secret_whatever_way_it_takes",
            f"{LOGS}::test_nothing_that_was_said_can_begin_a_line_of_its_own",
        ),
    ),
    issue=RUNNING,
)

MUST_SHOW = promises(
    "must show",
    (
        "shown.faults",
        "Every fault has a bounded, typed outcome, passes, disturbs no neighbour and leaves nothing behind.",
        (
            f"{MATRIX}::test_a_fault_is_told_passes_and_stays_where_it_is",
            f"{MATRIX}::test_nothing_is_left_behind",
            f"{MATRIX}::test_every_fault_has_its_script_and_every_script_its_fault",
            f"{NEVER_WELL}::test_a_server_that_was_never_well_says_why_and_is_found_when_it_is",
            "benchmarks/faults.py",
        ),
    ),
    (
        "shown.soak",
        "Under chaos no answer is lost, crossed or hung, every error has its fault, and memory stays flat.",
        ("benchmarks/soak.py", ".ci/run"),
    ),
    (
        "shown.load",
        "Load beside a peer and a floor; a flood is shed and forgotten.",
        ("benchmarks/load.py", ".ci/run"),
    ),
    (
        "shown.fuzz",
        "Whatever it is sent, by clients or servers, it answers, and serves the next.",
        (
            f"{FUZZ}/test_metatool_arguments.py::test_every_tool_answers_arguments_that_nearly_fit_it",
            f"{FUZZ}/test_frames.py::test_any_body_in_good_headers_is_answered",
            f"{FUZZ}/test_frames.py::test_any_line_is_answered_and_the_next_is_served",
            f"{FUZZ}/test_listings.py::test_a_listing_of_nearly_anything_loses_no_sibling",
            f"{FUZZ}/test_answers.py::test_any_result_has_an_outcome",
        ),
    ),
    issue=RUNNING,
)

PROMISES = (*MUST_SHOW, *SUPERVISOR, *RELOAD, *RELAYS, *LIMITS, *EXAMINED, *OBSERVED)
