// oidc-provider as a process: an OpenID provider and OAuth authorization server on loopback.
// Started by tests/auth/oidc_provider.py, with the folder of the package and the settings as JSON.
// Nobody looks at a page: a person is signed in by `login_hint`, and consents to everything.
import crypto from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [folder, text] = process.argv.slice(2);
const settings = JSON.parse(text);
const { default: Provider, errors } = await import(pathToFileURL(path.join(folder, 'lib/index.js')));

// What outlives a restart: the keys, clients that registered, grants, sessions and tokens.
const kept = { keys: [], records: {} };
if (fs.existsSync(settings.stateFile)) Object.assign(kept, JSON.parse(fs.readFileSync(settings.stateFile)));
const save = () => fs.writeFileSync(settings.stateFile, JSON.stringify(kept));
const makeKey = (alg, type, options) => {
  const { privateKey } = crypto.generateKeyPairSync(type, options);
  return { ...privateKey.export({ format: 'jwk' }), use: 'sig', alg, kid: `${alg}-${crypto.randomUUID()}` };
};
if (settings.newKeys || !kept.keys.length) {
  kept.keys = [
    makeKey('RS256', 'rsa', { modulusLength: 2048 }),
    makeKey('ES256', 'ec', { namedCurve: 'P-256' }),
  ];
  save();
}

class FileAdapter {
  constructor(model) {
    this.records = kept.records[model] ??= {};
  }
  async upsert(id, payload, expiresIn) {
    this.records[id] = { ...payload, expiresAt: expiresIn ? Date.now() + expiresIn * 1000 : undefined };
    save();
  }
  async find(id) {
    const found = this.records[id];
    if (!found || (found.expiresAt && found.expiresAt < Date.now())) return undefined;
    return found;
  }
  async findByUid(uid) {
    return Object.values(this.records).find((record) => record.uid === uid);
  }
  async findByUserCode(code) {
    return Object.values(this.records).find((record) => record.userCode === code);
  }
  async consume(id) {
    this.records[id].consumed = Math.floor(Date.now() / 1000);
    save();
  }
  async destroy(id) {
    delete this.records[id];
    save();
  }
  async revokeByGrantId(grantId) {
    for (const [id, record] of Object.entries(this.records)) {
      if (record.grantId === grantId) delete this.records[id];
    }
    save();
  }
}

const server = http.createServer();
await new Promise((resolve) => server.listen(settings.port, '127.0.0.1', resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;
const describe = (id) => settings.users[id] ?? { name: id };

const provider = new Provider(issuer, {
  adapter: FileAdapter,
  jwks: { keys: kept.keys },
  clients: settings.clients,
  clientDefaults: { id_token_signed_response_alg: 'RS256' },
  scopes: ['openid', 'offline_access', ...settings.scopes],
  claims: { openid: ['sub'], profile: ['name', 'groups'], email: ['email'] },
  conformIdTokenClaims: false,
  cookies: { keys: ['for tests'] },
  routes: {},
  rotateRefreshToken: true,
  issueRefreshToken: async (_, client) => client.grantTypeAllowed('refresh_token'),
  expiresWithSession: async () => false,
  pkce: { required: (_, client) => client.clientAuthMethod === 'none' },
  ttl: {
    AccessToken: settings.accessTokenTtl,
    ClientCredentials: settings.accessTokenTtl,
    AuthorizationCode: 60,
    RefreshToken: settings.refreshTokenTtl,
    IdToken: 3600, Interaction: 600, Session: 86400, Grant: 86400,
  },
  findAccount: async (_, sub) => ({
    accountId: sub,
    claims: async () => ({ sub, ...describe(sub) }),
  }),
  extraTokenClaims: async (_, token) => (token.accountId ? describe(token.accountId) : undefined),
  features: {
    devInteractions: { enabled: false },
    clientCredentials: { enabled: true },
    introspection: { enabled: true, allowedPolicy: async () => true },
    revocation: { enabled: true, allowedPolicy: async () => true },
    registration: { enabled: settings.registration },
    resourceIndicators: {
      enabled: true,
      defaultResource: async () => settings.defaultResource ?? undefined,
      useGrantedResource: async () => true,
      getResourceServerInfo: async (_, resource) => ({
        scope: ['openid', 'offline_access', ...settings.scopes].join(' '),
        audience: resource,
        accessTokenTTL: settings.accessTokenTtl,
        accessTokenFormat: settings.tokenFormat,
        jwt: { sign: { alg: settings.algorithm } },
      }),
    },
  },
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
});

const handle = provider.callback();
server.on('request', async (request, response) => {
  if (!request.url.startsWith('/interaction/')) return handle(request, response);
  try {
    const details = await provider.interactionDetails(request, response);
    const { prompt, params, session, grantId } = details;
    const user = params.login_hint ?? Object.keys(settings.users)[0];
    let result = { login: { accountId: user } };
    if (user === 'denied') {
      result = { error: 'access_denied', error_description: 'the user said no' };
    } else if (prompt.name === 'consent') {
      const grant = grantId
        ? await provider.Grant.find(grantId)
        : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
      const { missingOIDCScope, missingOIDCClaims, missingResourceScopes } = prompt.details;
      if (missingOIDCScope) grant.addOIDCScope(missingOIDCScope.join(' '));
      if (missingOIDCClaims) grant.addOIDCClaims(missingOIDCClaims);
      for (const [indicator, scopes] of Object.entries(missingResourceScopes ?? {})) {
        grant.addResourceScope(indicator, scopes.join(' '));
      }
      result = { consent: { grantId: await grant.save() } };
    }
    await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true });
  } catch (error) {
    response.writeHead(error instanceof errors.OIDCProviderError ? 400 : 500).end(String(error));
  }
});
provider.on('server_error', (_, error) => console.error(error));
console.log(JSON.stringify({ issuer }));
