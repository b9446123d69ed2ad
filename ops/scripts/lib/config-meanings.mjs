/** One line for each key of config.json: what the schema cannot say itself. */
export const CONFIG_MEANINGS = {
  'api.port': 'TCP port of the API on 127.0.0.1; 0 takes any free one, null opens none',
  'api.streamStallMs':
    'milliseconds after which a reader of a stream that takes nothing is dismissed; it can resume',
  'pi.command': 'your own Pi: program and leading arguments; absent: the one outlive depends on',
  'pi.agentDir': 'an isolated agent directory; absent: your own, `~/.pi/agent`',
  keyVariables: 'names of variables that hold keys; their values reach Pi only, as credentials',
  keyProxy:
    'providers of Pi’s whose keys stay with the wrapper, by Pi’s name of them: `{ "acme": { "keyVariable", "baseUrl", "header"?, "scheme"? } }`; the variable is one of keyVariables, the header `authorization` unless said otherwise, the word before the key `Bearer` there and none elsewhere',
  passEnvironment: 'names of further variables of the daemon that runners see',
  environment: 'further variables for runners, by value; no place for secrets',
  umask: 'octal umask of the programs runners start; absent: the daemon’s own',
  'limits.runner': 'how many runs of each runner at once; a runner that is not named has no limit',
  'limits.provider':
    'the same for each provider, by the part of `--model` before the slash, or for each preset',
  'limits.media_provider': 'the same for each media provider',
  presets:
    'providers with a model under a name of their own: `{ "fast": { "provider", "model", "maxParallel" } }`',
  'providerRetry.maxAttempts': 'attempts of one work unit in a row that its provider may fail',
  'providerRetry.maxDelayMs': 'milliseconds from the first of them to the start of the last',
  'breaker.failures': 'failures in a row, over all work of a provider, that pause it',
  'breaker.firstPauseMs': 'its first pause; doubles while it goes on failing',
  'breaker.maxPauseMs': 'its longest pause, unless the provider names a later reset',
  'spend.timeZone': 'whose midnight ends a day, as `Europe/Berlin`; absent: the daemon’s own',
  'spend.day.maxCostUsd': 'US dollars the whole workspace may spend on one day',
  'spend.day.maxTokens': 'tokens the whole workspace may spend on one day',
  'spend.kinds':
    'ceilings of one work unit by its kind: `{ "task_run": { "maxCostUsd", "maxTokens" } }`',
  'approvals.policy.rules':
    'rules in order, the first that holds decides: `{ "effect": "allow" | "ask" | "deny", "tool", "argument"?: { "name"?, "pattern" }, "path"?: "inside" | "outside", "reason"? }`',
  'approvals.policy.otherwise': 'what holds for a call that no rule names: allow, ask or deny',
  'approvals.kinds': 'a policy in place of that one for work of a kind',
  'approvals.channels': 'a policy in place of that one for work of a channel',
  'approvals.expireAfterMs': 'how long a question stays open; then it expires and its work fails',
  'approvals.suspendAfterMs':
    'a run that waits for an answer for longer gives its process, leases and slots back until then',
  'admission.minFreeMemory': 'nothing is started while fewer bytes of memory are free',
  drivers:
    'loops that look for work, by name, taken over at a start: see `docs/drivers.md`; each has the fields of `PUT /drivers/{name}`',
  'linear.webhookSecretFile':
    'a file with the webhook signing secret of the Linear app and nothing else; this or the credential turns `POST /linear/webhook` on',
  'linear.webhookSecretCredential':
    'in place of the file a credential of the daemon’s unit, by its name in `LoadCredential=`',
  'linear.organizationId':
    'the Linear organization whose deliveries are worked off; those of any other are kept and ignored; absent: all',
  'linear.clientId':
    'the Linear app’s client id; without it webhooks are kept and nothing is answered',
  'linear.clientSecretFile': 'a file with the app’s client secret and nothing else, mode 0600',
  'linear.clientSecretCredential':
    'in place of the file a credential of the daemon’s unit, by its name in `LoadCredential=`',
  'linear.tokensFile':
    'a file with the tokens of an app that a person authorised, which the daemon renews; absent: tokens are minted with the client secret',
  'linear.url': 'where Linear’s API is',
  'linear.names':
    'what people call the agent in Linear, the app’s name above all; a mention of itself is taken out of what it says',
  'linear.model': '`provider/model` of turns; absent: Pi’s own choice',
  'linear.repositories':
    'where issues are worked on: `[{ "path", "labels"?, "projects"?, "teams"?, "default"?, "branchPrefix"?, "setup"?, "fetch"? }]`; see docs/linear.md',
  'linear.cwd':
    'where issues are worked on when there is no repository; absent: the daemon’s home directory',
  'linear.trees':
    'below it each issue has its work tree; absent: `$XDG_STATE_HOME/outlive-trees/WORKSPACE`',
  'sandbox.mode':
    'how far what runs is kept from everything else: off, unit, nest, or auto (as much as can be had for Pi, nothing for a command); OUTLIVE_SANDBOX comes first',
  'sandbox.hide': 'further directories that commands in a nest do not see, as `/HOME/.ssh`',
  'sandbox.show':
    'of what a nest hides by itself outside of outlive, what it shall show, as `/run/docker.sock`',
  'retention.days': 'days after its end that work is kept whole; null for ever',
  'retention.diskBudgetBytes':
    'bytes of store, spools, sessions and exit records together before ended work goes early, oldest first; null for any number',
  'retention.intervalMinutes': 'minutes between two runs of retention by itself',
  captureBytes: 'bytes kept of a runner’s stdout and of its stderr, half head and half tail',
};
