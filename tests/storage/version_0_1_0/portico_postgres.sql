CREATE TABLE portico_calls (
	id BIGSERIAL NOT NULL,
	at DOUBLE PRECISION NOT NULL,
	server_key BYTEA NOT NULL,
	tool_key BYTEA NOT NULL,
	server TEXT NOT NULL,
	tool TEXT NOT NULL,
	tool_hash TEXT NOT NULL,
	ms DOUBLE PRECISION NOT NULL,
	ok BOOLEAN NOT NULL,
	cancelled BOOLEAN NOT NULL,
	client TEXT NOT NULL,
	profile TEXT NOT NULL,
	session TEXT NOT NULL,
	PRIMARY KEY (id)
);
CREATE INDEX ix_portico_calls_at ON portico_calls (at);
CREATE INDEX ix_portico_calls_server ON portico_calls (server_key, id);
CREATE INDEX ix_portico_calls_tool ON portico_calls (tool_key, id);
INSERT INTO portico_calls (id, at, server_key, tool_key, server, tool, tool_hash, ms, ok, cancelled, client, profile, session) VALUES (1, 1790000000.0, '\xdcb0615a5501f3ce73a0488d2e61017f', '\xff9d0d9e49920f1c17b40999bc7a1ed7', 'mail', 'send', '00112233aabbccdd', 12.5, true, false, 'claude', 'work', 'one');
CREATE TABLE portico_categories (
	key BYTEA NOT NULL,
	name TEXT NOT NULL,
	title TEXT NOT NULL,
	description TEXT NOT NULL,
	tools INTEGER NOT NULL,
	servers INTEGER NOT NULL,
	PRIMARY KEY (key)
);
INSERT INTO portico_categories (key, name, title, description, tools, servers) VALUES ('\x6517016bf15659f9e451a08ce45bd0d8', 'communication', 'Mail, chat and social media', 'Sends.', 1, 1);
CREATE TABLE portico_computed (
	name VARCHAR(32) NOT NULL,
	at DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (name)
);
INSERT INTO portico_computed (name, at) VALUES ('tiers', 1790000000.0);
CREATE TABLE portico_daily_usage (
	day INTEGER NOT NULL,
	key BYTEA NOT NULL,
	bucket INTEGER NOT NULL,
	server_key BYTEA NOT NULL,
	server TEXT NOT NULL,
	tool TEXT NOT NULL,
	calls BIGINT NOT NULL,
	successes BIGINT NOT NULL,
	last_at DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (day, key, bucket)
);
INSERT INTO portico_daily_usage (day, key, bucket, server_key, server, tool, calls, successes, last_at) VALUES (20717, '\x99fd7b7d2da5b6306262b10d928e6ab4', 29, '\xdcb0615a5501f3ce73a0488d2e61017f', 'mail', 'send', 1, 1, 1790000000.0);
CREATE TABLE portico_ledger_sessions (
	key BYTEA NOT NULL,
	session TEXT NOT NULL,
	client TEXT NOT NULL,
	profile TEXT NOT NULL,
	started_at DOUBLE PRECISION NOT NULL,
	last_at DOUBLE PRECISION NOT NULL,
	listing BIGINT NOT NULL,
	shown BIGINT NOT NULL,
	answers BIGINT NOT NULL,
	sessions BIGINT NOT NULL,
	PRIMARY KEY (key)
);
CREATE INDEX ix_portico_ledger_sessions_last_at ON portico_ledger_sessions (last_at);
INSERT INTO portico_ledger_sessions (key, session, client, profile, started_at, last_at, listing, shown, answers, sessions) VALUES ('\x9f53f347331267e2f8dca6d9354522d9', 'one', 'claude', 'work', 1789999950.0, 1790000000.0, 900, 40, 2, 1);
CREATE TABLE portico_manifest_tools (
	manifest_key BYTEA NOT NULL,
	position INTEGER NOT NULL,
	name TEXT NOT NULL,
	hash TEXT NOT NULL,
	definition BYTEA NOT NULL,
	warnings TEXT NOT NULL,
	PRIMARY KEY (manifest_key, position)
);
INSERT INTO portico_manifest_tools (manifest_key, position, name, hash, definition, warnings) VALUES ('\x0e080a27cf629861c107a6ff9821350a', 0, 'send', '00112233aabbccdd', '\x7b226e616d65223a2273656e64222c226465736372697074696f6e223a2253656e642061206c65747465722e222c22696e707574536368656d61223a7b2274797065223a226f626a656374227d7d', 'a warning');
CREATE TABLE portico_manifests (
	key BYTEA NOT NULL,
	server_key BYTEA NOT NULL,
	server TEXT NOT NULL,
	fingerprint TEXT NOT NULL,
	era TEXT NOT NULL,
	hello BYTEA NOT NULL,
	offers BYTEA NOT NULL,
	listed_at DOUBLE PRECISION NOT NULL,
	digest BYTEA NOT NULL,
	PRIMARY KEY (key)
);
CREATE INDEX ix_portico_manifests_server_key ON portico_manifests (server_key);
INSERT INTO portico_manifests (key, server_key, server, fingerprint, era, hello, offers, listed_at, digest) VALUES ('\x0e080a27cf629861c107a6ff9821350a', '\xdcb0615a5501f3ce73a0488d2e61017f', 'mail', 'fingerprint', 'modern', '\x7b22657261223a226d6f6465726e222c2270726f746f636f6c5f76657273696f6e223a22323032362d30372d3238222c226361706162696c6974696573223a7b22746f6f6c73223a7b7d7d2c227365727665725f696e666f223a7b226e616d65223a226d61696c222c2276657273696f6e223a2231227d2c22696e737472756374696f6e73223a224c6574746572732e222c227761726e696e6773223a5b5d7d', '\x7b227265736f7572636573223a5b5d2c2274656d706c61746573223a5b5d2c2270726f6d707473223a5b7b226e616d65223a226772656574227d5d7d', 1790000000.0, '\x23209e09d01d2c180cdd14264792f2fb3008471a5d850c2bb1452d98e551c598');
CREATE TABLE portico_news (
	kind VARCHAR(32) NOT NULL,
	origin TEXT NOT NULL,
	stamp BIGINT NOT NULL,
	at DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (kind, origin)
);
INSERT INTO portico_news (kind, origin, stamp, at) VALUES ('catalog', 'gateway', 1794970181702633661, 1794970181.7026348);
INSERT INTO portico_news (kind, origin, stamp, at) VALUES ('tiers', 'gateway', 1794970181725939002, 1794970181.7259395);
CREATE TABLE portico_plans (
	id VARCHAR(64) NOT NULL,
	scope TEXT NOT NULL,
	intent TEXT NOT NULL,
	words TEXT NOT NULL,
	steps TEXT NOT NULL,
	tools TEXT NOT NULL,
	runs INTEGER NOT NULL,
	used_at DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (id)
);
CREATE INDEX ix_portico_plans_scope ON portico_plans (scope);
INSERT INTO portico_plans (id, scope, intent, words, steps, tools, runs, used_at) VALUES ('p', 'work/claude', 'dmVj', '1 2', '[]', '{"mail.send":"00112233aabbccdd"}', 2, 1790000000.0);
CREATE TABLE portico_results (
	id VARCHAR(64) NOT NULL,
	caller TEXT NOT NULL,
	server TEXT NOT NULL,
	tool TEXT NOT NULL,
	created_at DOUBLE PRECISION NOT NULL,
	expires_at DOUBLE PRECISION NOT NULL,
	size BIGINT NOT NULL,
	media_type TEXT NOT NULL,
	body BYTEA,
	path TEXT,
	PRIMARY KEY (id)
);
CREATE INDEX ix_portico_results_expires_at ON portico_results (expires_at);
CREATE TABLE portico_servers (
	key BYTEA NOT NULL,
	name TEXT NOT NULL,
	title TEXT NOT NULL,
	category TEXT NOT NULL,
	first_seen DOUBLE PRECISION NOT NULL,
	last_seen DOUBLE PRECISION NOT NULL,
	digest BYTEA NOT NULL,
	PRIMARY KEY (key)
);
INSERT INTO portico_servers (key, name, title, category, first_seen, last_seen, digest) VALUES ('\xdcb0615a5501f3ce73a0488d2e61017f', 'mail', 'Mail', 'communication', 1790000000.0, 1790000000.0, '\xe4c8b6c522bfa5e83cfe2b4661a1ff4e3742b8ccb08eff05decd01f9c27562cd');
CREATE TABLE portico_shapes (
	hash VARCHAR(64) NOT NULL,
	results INTEGER NOT NULL,
	shape TEXT NOT NULL,
	seen_at DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (hash)
);
CREATE INDEX ix_portico_shapes_seen_at ON portico_shapes (seen_at);
INSERT INTO portico_shapes (hash, results, shape, seen_at) VALUES ('00112233aabbccdd', 3, '{"type":"object"}', 1790000000.0);
CREATE TABLE portico_tiers (
	key BYTEA NOT NULL,
	server TEXT NOT NULL,
	tool TEXT NOT NULL,
	score DOUBLE PRECISION NOT NULL,
	tier TEXT NOT NULL,
	PRIMARY KEY (key)
);
INSERT INTO portico_tiers (key, server, tool, score, tier) VALUES ('\x99fd7b7d2da5b6306262b10d928e6ab4', 'mail', 'send', 0.9, 'hot');
CREATE TABLE portico_tools (
	key BYTEA NOT NULL,
	server_key BYTEA NOT NULL,
	server TEXT NOT NULL,
	name TEXT NOT NULL,
	hash TEXT NOT NULL,
	category TEXT NOT NULL,
	first_seen DOUBLE PRECISION NOT NULL,
	last_seen DOUBLE PRECISION NOT NULL,
	changes BIGINT NOT NULL,
	gone BOOLEAN NOT NULL,
	PRIMARY KEY (key)
);
CREATE INDEX ix_portico_tools_server_key ON portico_tools (server_key);
INSERT INTO portico_tools (key, server_key, server, name, hash, category, first_seen, last_seen, changes, gone) VALUES ('\x99fd7b7d2da5b6306262b10d928e6ab4', '\xdcb0615a5501f3ce73a0488d2e61017f', 'mail', 'send', '00112233aabbccdd', 'communication', 1790000000.0, 1790000000.0, 0, false);
CREATE TABLE portico_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT portico_version_pkc PRIMARY KEY (version_num));
INSERT INTO portico_version VALUES ('0002');
