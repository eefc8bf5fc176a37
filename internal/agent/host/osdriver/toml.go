package osdriver

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ParseKargs reads one file of kargs.d for an architecture: TOML with at most the
// keys kargs and match-architectures, both lists of strings. Anything else is an
// error, as it is for bootc.
func ParseKargs(b []byte, arch string) ([]string, error) {
	p := tomlLists{rest: string(b)}
	lists := map[string][]string{}
	for p.blank(); p.rest != ""; p.blank() {
		key, list, err := p.assignment()
		if err != nil {
			return nil, err
		}
		if key != "kargs" && key != "match-architectures" {
			return nil, fmt.Errorf("unknown key %q", key)
		}
		if _, twice := lists[key]; twice {
			return nil, fmt.Errorf("key %q is there twice", key)
		}
		lists[key] = list
	}
	if only, ok := lists["match-architectures"]; ok && !slices.Contains(only, arch) {
		return nil, nil
	}
	return lists["kargs"], nil
}

// tomlLists reads the part of TOML that these files may have: keys with lists of
// strings.
type tomlLists struct{ rest string }

// blank skips blanks, ends of lines and comments.
func (p *tomlLists) blank() {
	for {
		p.rest = strings.TrimLeft(p.rest, " \t\r\n")
		if !strings.HasPrefix(p.rest, "#") {
			return
		}
		if _, after, ok := strings.Cut(p.rest, "\n"); ok {
			p.rest = after
		} else {
			p.rest = ""
		}
	}
}

func (p *tomlLists) eat(s string) bool {
	after, ok := strings.CutPrefix(p.rest, s)
	p.rest = after
	return ok
}

func (p *tomlLists) assignment() (key string, list []string, err error) {
	key, after, ok := strings.Cut(p.rest, "=")
	if !ok {
		return "", nil, fmt.Errorf("%.40q is no key with a value", p.rest)
	}
	key, p.rest = strings.Trim(strings.TrimSpace(key), `"`), after
	list, err = p.list()
	if err != nil {
		return "", nil, fmt.Errorf("%.40s: %w", key, err)
	}
	line, _, _ := strings.Cut(p.rest, "\n")
	if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
		return "", nil, fmt.Errorf("%.40s: unexpected %.40q", key, line)
	}
	return key, list, nil
}

func (p *tomlLists) list() ([]string, error) {
	out := []string{}
	if p.blank(); !p.eat("[") {
		return nil, errors.New("the value is no list")
	}
	for {
		if p.blank(); p.eat("]") {
			return out, nil
		}
		s, err := p.text()
		if err != nil {
			return nil, err
		}
		out = append(out, s)
		if p.blank(); p.eat(",") {
			continue
		}
		if !strings.HasPrefix(p.rest, "]") {
			return nil, errors.New("a list without an end")
		}
	}
}

// text is a basic or a literal string on one line.
func (p *tomlLists) text() (string, error) {
	if p.eat("'") {
		s, after, ok := strings.Cut(p.rest, "'")
		if !ok || strings.Contains(s, "\n") {
			return "", errors.New("a text without an end")
		}
		p.rest = after
		return s, nil
	}
	quoted, err := strconv.QuotedPrefix(p.rest)
	if err != nil || !strings.HasPrefix(quoted, `"`) {
		return "", errors.New("an element that is no text")
	}
	p.rest = p.rest[len(quoted):]
	return strconv.Unquote(quoted)
}
