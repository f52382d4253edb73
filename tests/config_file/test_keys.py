"""The list of configurable keys."""

from portico.config_file import iter_keys


def test_every_key_has_help_that_ends_like_a_sentence():
    for key in iter_keys():
        assert key.help, key.dotted_name
        assert key.help.endswith("."), key.dotted_name


def test_every_scalar_outside_servers_and_profiles_has_its_variable():
    variables = {key.dotted_name: key.environment_variable for key in iter_keys()}
    assert variables["gateway.port"] == "PORTICO_PORT"
    assert variables["gateway.token"] == "PORTICO_TOKEN"
    assert variables["exposure"] == "PORTICO_EXPOSURE"
    assert variables["data_dir"] == "PORTICO_DATA_DIR"
    assert variables["limits.start_concurrency"] == "PORTICO_LIMITS__START_CONCURRENCY"
    assert variables["servers.*.command"] is None
    assert variables["servers.*.timeouts.call_s"] is None
    assert variables["metatools"] is None
    given_variables = [variable for variable in variables.values() if variable]
    assert len(given_variables) == len(set(given_variables))


def test_what_portico_finds_out_itself_is_no_key():
    assert not {"servers.*.problem", "servers.*.written", "written"} & {
        key.dotted_name for key in iter_keys()
    }
