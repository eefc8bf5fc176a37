package fsutil

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"sync"
)

// Contexts are the file contexts of an SELinux policy: which label a file has by its path.
// file_contexts(5) has the format, selabel_file(5) says which line counts.
type Contexts struct {
	mu sync.Mutex // patterns compile when they are first needed
	// specs in the order in which they are asked.
	specs []contextSpec
	// aliases replace the beginning of a path; those of the site come before those of the
	// distribution.
	site, dist []contextAlias
}

type contextSpec struct {
	pattern string
	// prefix that every path has which matches; it is cheaper to compare.
	prefix string
	// kind of file, 0 for any.
	kind  fs.FileMode
	any   bool
	label string
	re    *regexp.Regexp
}

type contextAlias struct{ from, to string }

// Files of a policy's contexts, without the beginning of their names.
var contextParts = []string{"", ".homedirs", ".local"}

// ReadContexts reads a policy. read returns a file by its name; one that does not exist is
// fs.ErrNotExist, and only the first one is needed.
func ReadContexts(read func(name string) ([]byte, error)) (*Contexts, error) {
	c := &Contexts{}
	var exact []contextSpec
	for _, part := range contextParts {
		b, err := read("file_contexts" + part)
		if errors.Is(err, fs.ErrNotExist) && part != "" {
			continue
		}
		if err == nil {
			exact, err = c.addSpecs(b, exact)
		}
		if err != nil {
			return nil, fmt.Errorf("file_contexts%s: %w", part, err)
		}
	}
	c.specs = append(c.specs, exact...) // the last one counts
	var err1, err2 error
	c.site, err1 = readAliases(read, "file_contexts.subs")
	c.dist, err2 = readAliases(read, "file_contexts.subs_dist")
	return c, errors.Join(err1, err2)
}

// addSpecs adds the lines of a file, and returns those without a pattern with those before.
func (c *Contexts) addSpecs(text []byte, exact []contextSpec) ([]contextSpec, error) {
	for n, line := range strings.Split(string(text), "\n") {
		spec, literal, err := parseContext(line)
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		case spec.pattern == "":
		case literal:
			exact = append(exact, spec)
		default:
			c.specs = append(c.specs, spec)
		}
	}
	return exact, nil
}

func readAliases(read func(string) ([]byte, error), name string) (out []contextAlias, err error) {
	b, err := read(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, line := range strings.Split(string(b), "\n") {
		if f := strings.Fields(line); len(f) == 2 && !strings.HasPrefix(f[0], "#") {
			out = append(out, contextAlias{f[0], f[1]})
		}
	}
	return out, nil
}

// contextKinds are the kinds of files that a line may name.
var contextKinds = map[string]fs.FileMode{"--": 0, "-d": fs.ModeDir, "-l": fs.ModeSymlink, "-b": fs.ModeDevice, "-c": fs.ModeDevice | fs.ModeCharDevice, "-p": fs.ModeNamedPipe, "-s": fs.ModeSocket}

func parseContext(line string) (spec contextSpec, literal bool, err error) {
	f := strings.Fields(line)
	if len(f) == 0 || strings.HasPrefix(f[0], "#") {
		return spec, false, nil
	}
	spec = contextSpec{pattern: f[0], any: true, label: f[len(f)-1]}
	if len(f) == 3 {
		kind, ok := contextKinds[f[1]]
		if !ok {
			return spec, false, fmt.Errorf("%q is no kind of file", f[1])
		}
		spec.kind, spec.any = kind, false
	}
	if len(f) < 2 || len(f) > 3 {
		return spec, false, fmt.Errorf("it has %d words, and must have 2 or 3", len(f))
	}
	spec.prefix, literal = contextPrefix(spec.pattern)
	return spec, literal, nil
}

// contextPrefix is what every path begins with that a pattern matches; literal: it is all of it.
func contextPrefix(pattern string) (prefix string, literal bool) {
	if before, _, ok := strings.Cut(pattern, "|"); ok && !strings.Contains(before, "(") {
		return "", false
	}
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; c {
		case '\\':
			if i++; i < len(pattern) {
				prefix += string(pattern[i])
			}
		case '?', '*', '{': // of the character before
			return prefix[:max(0, len(prefix)-1)], false
		case '.', '^', '$', '+', '|', '[', '(':
			return prefix, false
		default:
			prefix += string(c)
		}
	}
	return prefix, true
}

// fileKind is the part of a mode that a line may name.
const fileKind = fs.ModeDir | fs.ModeSymlink | fs.ModeDevice | fs.ModeCharDevice | fs.ModeNamedPipe | fs.ModeSocket

// Label is the label of a file by its path and kind, "" if the policy has none for it.
func (c *Contexts) Label(name string, mode fs.FileMode) (string, error) {
	name = alias(c.dist, alias(c.site, path.Clean("/"+name)))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.specs) - 1; i >= 0; i-- {
		s := &c.specs[i]
		if !s.any && s.kind != mode&fileKind || !strings.HasPrefix(name, s.prefix) {
			continue
		}
		if s.re == nil {
			re, err := regexp.Compile("(?s)^(?:" + s.pattern + ")$")
			if err != nil {
				return "", fmt.Errorf("SELinux label of %s: file_contexts has a pattern that refit cannot read: %w", name, err)
			}
			s.re = re
		}
		if !s.re.MatchString(name) {
			continue
		}
		if s.label == "<<none>>" {
			return "", nil
		}
		return s.label, nil
	}
	return "", nil
}

// alias replaces the beginning of a path, by the last line that fits.
func alias(all []contextAlias, name string) string {
	for i := len(all) - 1; i >= 0; i-- {
		rest, ok := strings.CutPrefix(name, all[i].from)
		if !ok || rest != "" && rest[0] != '/' {
			continue
		}
		return path.Clean(all[i].to + rest)
	}
	return name
}

// PolicyIsOn reports whether /etc/selinux/config switches SELinux on.
func PolicyIsOn(config []byte) bool {
	for line := range bytes.Lines(config) {
		v, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("SELINUX="))
		if v = bytes.ToLower(bytes.TrimSpace(v)); ok && (bytes.HasPrefix(v, []byte("enforcing")) || bytes.HasPrefix(v, []byte("permissive"))) {
			return true
		}
	}
	return false
}

// PolicyName is the policy that /etc/selinux/config names.
func PolicyName(config []byte, err error) string {
	name := "targeted"
	if err != nil {
		return name
	}
	for line := range strings.SplitSeq(string(config), "\n") {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "SELINUXTYPE="); ok && strings.TrimSpace(v) != "" {
			name = path.Base(strings.TrimSpace(v))
		}
	}
	return name
}
