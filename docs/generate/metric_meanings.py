"""The meaning of each metric, by group, in more words than its help text."""

from collections.abc import Mapping

MEANINGS: Mapping[str, Mapping[str, str]] = {
    "Calls": {
        "portico_calls_total": (
            "Calls of tools that were started, by any caller: clients, scripts, "
            "workflows. `ok`; `error` (the tool says so, or it could not be reached); `cancelled` "
            "(its caller took it back); `cached` (an earlier answer was given again). A call whose "
            "arguments do not fit is refused before, and is in the audit log only."
        ),
        "portico_call_errors_total": (
            "The errors by kind: `tool_error` (the tool's own), `remote` (a JSON-RPC error of its "
            "server), `timeout`, `unavailable`, `busy` (the server's `limits` are reached), "
            "`internal` (our own fault), …"
        ),
        "portico_call_seconds": (
            "How long calls took that ended as `ok` or `error`, from 1 ms to 60 s. The time a "
            "server needs to be started does not count."
        ),
    },
    "Servers": {
        "portico_backend_state": (
            "1 for the state it is in, 0 for the others: `configured`, `known` (listed before, not "
            "started: that is normal), `starting`, `ready`, `degraded` (up, but it could not be "
            "listed), `down`, `disabled`, `needs sign-in`, `quarantined` (it kept dying, and is "
            "not started by itself)."
        ),
        "portico_backend_state_since_seconds": "Since when a server is in its state, in "
        "seconds since 1970.",
        "portico_backend_breaker": (
            "1 for what its circuit breaker is: `closed` (all is well), `open` (calls are refused "
            "at once), `half_open` (one is tried)."
        ),
        "portico_backend_failures": "How often it failed lately; what works again counts from 0.",
        "portico_backend_restarts_total": (
            "Times it was started again after it died, or was ended because something was wrong."
        ),
        "portico_backend_requests_total": "Requests sent to it, listings and resources included.",
        "portico_backend_memory_bytes": (
            "Memory of it and its children, where it is a command and that was looked at."
        ),
        "portico_backend_instances": "Clients that have one of their own now, "
        "with `isolation: session`.",
    },
    "Finding": {
        "portico_catalog_servers": "Servers that are configured and not switched off.",
        "portico_catalog_tools": "Tools that are known.",
        "portico_catalog_tools_unencoded": (
            "Tools that have no vector yet and are found by their words only; falls to 0 "
            "within minutes of a start."
        ),
        "portico_searches_total": "Searches of clients, scripts and REST: "
        "`found` something, or `nothing`.",
        "portico_search_seconds": "How long searches took.",
        "portico_tokens_shown_total": "Tokens of our answers about tools.",
        "portico_tokens_listing_total": "Tokens that listing every tool would have "
        "cost the same clients.",
        "portico_tokens_saved": (
            "The listing less what was shown; below 0 where answers cost more than the listing. A "
            "gauge, because it can fall."
        ),
        "portico_answers_total": "Answers and listings that clients were shown.",
        "portico_sessions_total": "Client sessions that began.",
    },
    "Scripts and workflows": {
        "portico_scripts_total": (
            "Scripts of `run_code`: `ok`, `cancelled`, `refused`, or what went wrong "
            "(`syntax`, `runtime`, "
            "`call`, `time`, `memory`, `recursion`, `output`, `value`, `deadlock`, `crash`)."
        ),
        "portico_script_seconds": "How long scripts took, their calls of tools included.",
        "portico_sandbox_workers": (
            "Processes that run scripts: `busy`, and `idle` for the next one (not told by "
            "`python`). An engine shows with its first script; TypeScript runs in `javascript`."
        ),
        "portico_workflows_total": (
            "Workflows: `finished`, `failed`, `approval` (stopped to ask), `refused` (the steps "
            "were wrong; nothing ran), `cancelled`."
        ),
        "portico_workflow_seconds": "How long workflows took.",
    },
    "What is kept": {
        "portico_cache_hits_total": "Calls of tools that may be cached, and were "
        "answered from the cache.",
        "portico_cache_misses_total": "Calls of tools that may be cached, and had to be made.",
        "portico_cache_entries": "Answers in the cache.",
        "portico_cache_bytes": "The memory that the answers in the cache take.",
        "portico_results": "Large results that are kept for their callers.",
        "portico_results_bytes": "The disk that large results take.",
        "portico_audit_usable": (
            "1 while every call has its line in the [audit log](audit.md), 0 while lines are lost."
        ),
        "portico_configuration_usable": (
            "1 while the configuration on disk is in use, 0 while it is refused and an "
            "earlier one runs."
        ),
        "portico_record_usable": (
            "1 while use is written to the database, 0 while that fails; calls go on all the same."
        ),
    },
    "Endpoints and the process": {
        "portico_clients": (
            "`legacy`: sessions of clients that shook hands. `modern`: open `subscriptions/listen` "
            "streams; such a client has no other connection."
        ),
        "portico_requests_in_flight": "Requests that hold a place (`limits.requests`).",
        "portico_requests_waiting": "Requests that wait for a place (`limits.waiting`).",
        "portico_requests_turned_away_total": (
            "Requests refused because the gateway, or their client's share of it, was full."
        ),
        "portico_event_loop_lag_seconds": (
            "The longest delay of the event loop in the last 30 seconds: what every client "
            "waits for, whatever it asks."
        ),
        "portico_build_info": "Always 1; the label has the version.",
    },
}
