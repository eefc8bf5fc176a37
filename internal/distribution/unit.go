package distribution

import (
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
	var command string
	for _, text := range texts {
		for _, line := range unitLines(text) {
			if v, ok := strings.CutPrefix(line, "ExecStart="); ok {
				command = v
			}
		}
	}
	words := unitWords(command)
	u := Unit{Flags: map[string]string{}}
	if len(words) == 0 {
		return u
	}
	if p := strings.TrimLeft(words[0], "@-:+!"); strings.HasPrefix(p, "/") {
		u.Program = p
	}
	for i, w := range words[1:] {
		name, value, equals := strings.Cut(w, "=")
		key := strings.TrimLeft(name, "-")
		if long := shortFlags[name]; long != "" {
			key = long
		}
		if name == key || !slices.Contains(knownFlags, key) {
			continue
		}
		if !equals && i+2 < len(words) {
			value = words[i+2]
		}
		u.Flags[key] = value
	}
	return u
}

// unitLines returns the settings of a unit, with lines that a backslash continues joined.
func unitLines(text string) []string {
	var out []string
	var open string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		if start, ok := strings.CutSuffix(line, `\`); ok {
			open += start + " "
			continue
		}
		out, open = append(out, open+line), ""
	}
	return append(out, strings.TrimSpace(open))
}

// unitWords splits a command as systemd does, in so far as paths need it: quotes hold words
// together.
func unitWords(command string) []string {
	var out []string
	var word strings.Builder
	quote, started := byte(0), false
	for i := range len(command) {
		c := command[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, started = c, true
		case quote == 0 && (c == ' ' || c == '\t'):
			if started {
				out = append(out, word.String())
			}
			word.Reset()
			started = false
		default:
			word.WriteByte(c)
			started = true
		}
	}
	if started {
		out = append(out, word.String())
	}
	return out
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
