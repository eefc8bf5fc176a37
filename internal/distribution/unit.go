package distribution

import (
	"regexp"
	"slices"
	"strings"
)

// Unit is what a unit starts. It has no other argument than those of knownFlags: an argument
// may be a token.
type Unit struct {
	// Program is the absolute path in ExecStart, "" if there is none.
	Program string
	Flags   map[string]string
}

// knownFlags are the arguments that are read of a unit. They name paths.
var knownFlags = []string{"data-dir", "config", "container-runtime-endpoint", "kubelet-root-dir"}

// shortFlags are other names of them.
var shortFlags = map[string]string{"-d": "data-dir", "-c": "config"}

// ReadUnit reads the last ExecStart of a unit and its drop-ins, in the order in which systemd
// reads them: an empty ExecStart resets those before it.
func ReadUnit(texts ...string) Unit {
	u := Unit{Flags: map[string]string{}}
	words := unitWords(lastCommand(texts))
	if len(words) == 0 {
		return u
	}
	if p := strings.TrimLeft(words[0], "@-:+!"); strings.HasPrefix(p, "/") {
		u.Program = p
	}
	words = append(words, "") // the value of a last flag
	for i, w := range words[1 : len(words)-1] {
		name, value, equals := strings.Cut(w, "=")
		if !equals {
			value = words[i+2]
		}
		if key := flagName(name); slices.Contains(knownFlags, key) {
			u.Flags[key] = value
		}
	}
	return u
}

// flagName returns the long name of an argument that is a flag, "" for any other.
func flagName(arg string) string {
	if long := shortFlags[arg]; long != "" {
		return long
	}
	if name := strings.TrimLeft(arg, "-"); name != arg {
		return name
	}
	return ""
}

func lastCommand(texts []string) (command string) {
	for _, text := range texts {
		for _, line := range unitLines(text) {
			if v, ok := strings.CutPrefix(line, "ExecStart="); ok {
				command = v
			}
		}
	}
	return command
}

// unitLines returns the settings of a unit, with lines that a backslash continues joined.
func unitLines(text string) []string {
	var out []string
	var open strings.Builder // a unit may have a hundred thousand continued lines
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		if start, ok := strings.CutSuffix(line, `\`); ok {
			open.WriteString(start + " ")
			continue
		}
		open.WriteString(line)
		out = append(out, open.String())
		open.Reset()
	}
	return append(out, strings.TrimSpace(open.String()))
}

// unitWord is a word of a command: quotes hold parts of it together.
var unitWord = regexp.MustCompile(`(?:"[^"]*"|'[^']*'|[^\s"'])+`)

// unitWords splits a command as systemd does, in so far as paths need it.
func unitWords(command string) []string {
	words := unitWord.FindAllString(command, -1)
	for i, w := range words {
		words[i] = strings.NewReplacer(`"`, "", "'", "").Replace(w)
	}
	return words
}

// topLevel returns the value of a key at the top level of a YAML text, "" if it has none. The
// configurations of k3s and RKE2 are flags with values, one a line.
func topLevel(text, key string) string {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, key+":"); ok {
			v, _, _ = strings.Cut(v, " #")
			return strings.Trim(strings.TrimSpace(v), `"'`)
		}
	}
	return ""
}

// NamesDatastore reports whether a unit, an environment or a configuration of k3s, RKE2 or
// k0s names another datastore than the default one. It answers yes where it is not sure.
func NamesDatastore(texts ...string) bool {
	for _, text := range texts {
		for line := range strings.Lines(text) {
			line = strings.ToLower(strings.ReplaceAll(strings.TrimSpace(line), "_", "-"))
			if strings.HasPrefix(line, "#") {
				continue
			}
			if strings.Contains(line, "datastore-endpoint") || ofK0s(line) {
				return true
			}
		}
	}
	return false
}

// ofK0s reports whether a line of k0s.yaml, in lower case, names another datastore than
// embedded etcd and the default file of SQLite.
func ofK0s(line string) bool {
	if _, value, ok := strings.Cut(line, "externalcluster"); ok {
		return !strings.Contains(value, "null")
	}
	_, value, ok := strings.Cut(line, "datasource")
	return ok && (!strings.Contains(value, "sqlite:") || !strings.Contains(value, "/db/state.db"))
}
