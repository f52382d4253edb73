"""Makes the arguments of a caller those of the server, where the configuration overrides a tool's
parameters.

It is below everything that stores or shows arguments: fixed values, which may be secrets, are seen
by the server alone. What the server says of them is masked.
"""

from collections.abc import Coroutine
from typing import Any

from portico.calls.call import Call, Handler
from portico.calls.result_masking import ResultMasking, SecretMasking, ValueMasking
from portico.catalog.argument_translation import ArgumentTranslation
from portico.catalog.schema_validator import find_validator
from portico.catalog.tool import Tool
from portico.config_file.secret_references import fill_in, find_references
from portico.errors import InvalidArguments
from portico.upstream.backend import Raw
from portico.upstream.secret_reader import SecretReader


class ServerArguments:
    """A middleware; `reader` reads the secrets among fixed values."""

    def __init__(self, masking: ValueMasking, reader: SecretReader | None = None) -> None:
        self._masking = masking
        self._secrets = SecretMasking()
        self._secrets.mask_configured = self._mask_configured
        self._result_masking = ResultMasking(self._secrets)
        self._reader = reader

    async def _mask_configured(self, value: Raw) -> Raw:
        return await self._masking.mask_configured(value)

    def translate(self, call: Call, /, call_next: Handler[Call]) -> Coroutine[Any, Any, Raw]:
        """Middleware: add what the server is sent; raises InvalidArguments where its schema does
        not allow that, and SecretUnavailable."""
        translation = call.tool.translation
        if translation is None:
            # The definition may be another one than when this was made for an earlier round.
            call.server_arguments = None
            return call_next(call)
        if not translation.fixed:
            call.server_arguments = translation.translate(call.arguments, {})
            check_server_arguments(call.tool, call.server_arguments)
            return call_next(call)
        return self._add_fixed(call, translation, call_next)

    async def _add_fixed(
        self, call: Call, translation: ArgumentTranslation, call_next: Handler[Call]
    ) -> Raw:
        fixed = translation.fixed
        if self._reader is not None and (references := find_references(fixed)):
            fixed = fill_in(fixed, await self._reader.read_all(references))
        call.server_arguments = translation.translate(call.arguments, fixed)
        check_server_arguments(call.tool, call.server_arguments)
        return await self._result_masking.mask_answer(call, (), call_next)


def check_server_arguments(tool: Tool, arguments: Raw) -> None:
    """Raise InvalidArguments if arguments do not fit the server's own schema.

    They fit the schema that callers see, so what is wrong is mostly the configuration. No value is
    named: one may be a secret.
    """
    validator = find_validator(tool.hash, tool.own_blob, "inputSchema")
    if validator is None or validator.is_valid(arguments):
        return
    raise InvalidArguments(
        f"with what this gateway adds, the arguments do not fit the schema of {tool.address}",
        advice="Nothing was sent to its server. If other arguments do not help either, its"
        " overrides have to be corrected: `portico doctor` says how.",
    )
