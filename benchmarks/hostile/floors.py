"""Inputs that mean no harm, with as many bytes as the hostile ones: what they cost, company costs."""

from benchmarks.hostile.kinds import CLIENT_BYTES, SERVER_BYTES, Kind, call, sends, text_result

KINDS = (
    Kind("(floor: small calls)", "client", "", lambda: call()),
    Kind("(floor: 4 MB, one text)", "client", "", sends(lambda: f'{{"x":"{"a" * (CLIENT_BYTES - 20)}"}}')),
    Kind("(floor: answer of 64 MB, one text)", "server", "", sends(lambda: "{}"),
         answer=lambda: text_result("a" * (SERVER_BYTES - 200))),
)  # fmt: skip
