package structure

import "regexp"

// This file is the only one that may contain retired words: it lists them.

// retired is a pattern that people of the field do not search for, and the words to use instead.
type retired struct {
	pattern *regexp.Regexp
	use     string
	// allowed are the surroundings in which the word is a term of the field.
	allowed *regexp.Regexp
}

func words(pattern, use string) retired {
	return retired{pattern: regexp.MustCompile(`(?i)\b(?:` + pattern + `)\b`), use: use}
}

func (r retired) but(allowed string) retired {
	r.allowed = regexp.MustCompile(`(?i)` + allowed)
	return r
}

// retiredWords holds for Markdown, Go comments and string literals.
var retiredWords = []retired{
	words(`told`, "desired state; reported, instructed"),
	words(`lack|lacks|lacked|lacking`, "miss, missing, without"),
	words(`mend|mends|mended|mending`, "repair, fix"),
	words(`judge|judges|judged|judging|judgement`, "classify, evaluate"),
	words(`liar|liars|lie|lies|lied|lying`, "bad peer; tag mismatch; is at"),
	words(`foretell|foretells|foretold|foresee|foresees|foreseen|foresaw|outlook`, "predict, forecast"),
	words(`newcomers?`, "new node; startup taint"),
	words(`neighbou?rs?`, "peer (node); interlock (autoscaler); nearby").but(`neighbou?r (table|cache|discovery)`),
	words(`rosters?|census|ledgers?|tally|tallies`, "node index, summary"),
	words(`doorkeepers?|letin`, "startup taint"),
	words(`(?:is|are|was|were|be) said`, "the subject and: prints, reports, documents"),
	words(`whoever|whatever|somebody|anybody`, "the actor: the user, the administrator, the kubelet"),
	words(`nobody`, "the actor: no user, no controller; `user nobody` for the account").but(`(user|group|as|uid|to|of|runs?|setpriv) (root or )?nobody|runs for nobody|nobody:|nobody's (process|files)`),
	words(`kick|kicks|kicked|kicking`, "notify, wake"),
	words(`pulses?`, "heartbeat"),
	words(`begun`, "started"),
	words(`besides?`, "next to, additional; also"),
	words(`affairs?`, "say who handles it"),
	words(`cure|cures|cured|curing`, "fix"),
	words(`births?|born`, "installed image (of a machine), created"),
	words(`lineages?`, "machine provenance"),
	words(`look(?:s|ed|ing)? (?:at|closer)`, "check, inspect, observe, list"),
	words(`(?:take|takes|took|taken|taking|gives?|gave|given|giving|puts?|putting|goes|go|went|gone|going) back`, "undo (a step), roll back (an update), restore (a file), return (a node)"),
	words(`passing (?:errors?|failures?|faults?)`, "transient"),
	words(`(?:is|are|was|were|be|been|server|servers|registry|registries|controller) away`, "unavailable, unreachable"),
	words(`worlds?`, "snapshot").but(`hello,? world|world-|real world`),
	words(`R[0-9]+\.[0-9]+`, "a link to a document or test, or the sentence itself"),
	{pattern: regexp.MustCompile(`\b(?:CameBackOld|EtcdStays|FallsBack|PointerStolen|TagLies|TagGone|RegistryAway|RegistryDenies|RegistryLimits|APIServerAway|AgentSilent|UpdaterSilent|TrackLooking|NodeHeld|NotHeld|StartNotChecked|BootImageRolls|PodNotEnding|images-not-held)\b`), use: "the reason word that replaced it (api/v1alpha1)"},
}

// retiredNames are words that no declared Go name, JSON member or single-word string has in it.
var retiredNames = map[string]string{
	"told": "desired", "lacks": "missing", "lacking": "missing", "mend": "repair", "mended": "repaired",
	"judge": "classify, evaluate", "judged": "classified", "liar": "badPeer", "liars": "badPeers", "lies": "mismatch",
	"foretell": "predict", "foretold": "predicted", "foresee": "predict", "foreseen": "predicted", "outlook": "forecast",
	"newcomer": "newNode", "newcomers": "newNodes", "neighbour": "peer, interlock", "neighbours": "peers, interlocks",
	"roster": "nodeIndex", "census": "summary", "ledger": "index", "tally": "count, summary", "doorkeeper": "startupTaint", "letin": "startupTaint",
	"whoever": "actor", "whatever": "any", "nobody": "none", "somebody": "actor",
	"kick": "notify, wake", "pulse": "heartbeat", "begun": "started", "beside": "nextTo", "affair": "owner",
	"cure": "fix", "cures": "fixes", "births": "installedImages", "birth": "installedImage", "born": "installed", "lineage": "provenance",
	"world": "snapshot", "stick": "medium", "sticks": "media",
}

// frozenNames are members of JSON that users' scripts read; they keep their names.
var frozenNames = []string{"bytesFromStick"}

// retiredKeys are whole string literals: keys of logs.
var retiredKeys = map[string]string{"because": "error"}

var proseSamples = []struct {
	text string
	bad  bool
}{
	{"what this node was told before is unreadable", true},
	{"cached desired state is corrupt; waiting for the API server", false},
	{"The API server is away while kubeadm replaces it", true},
	{"the header is parsed as user nobody, without capabilities", false},
	{"nobody reads it", true},
	{"it is as R1.80 asks", true},
	{"a reason AgentSilent of the API", true},
	{"refit inspects the record", false},
	{"the record is looked at", true},
	{"a file that goes back", true},
	{"one two three four five six seven eight nine ten one two three four five six seven eight nine ten one two three four five six seven eight nine ten one two three", true},
	{"one two three four five six seven eight nine ten one two three four five. Six seven eight nine ten one two three four five six seven eight nine ten one two three", false},
}
