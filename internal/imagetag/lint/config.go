package lint

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/refit-dev/refit/internal/imagetag"
)

// Config is what a person decides about the rules.
type Config struct {
	// Offline: the objects are for a site without a registry.
	Offline bool `yaml:"offline"`
	// Schemes that are declared, the first that matches counts.
	Schemes []Declared `yaml:"schemes"`
	// Off are rules that do not count.
	Off []Off `yaml:"off"`
	// RollbackWindow is how long the way back must last, for example 720h.
	RollbackWindow string `yaml:"rollbackWindow"`
	// RollbackSeconds is the same, read.
	RollbackSeconds int64 `yaml:"-"`
}

// Declared is a repository, or a pattern that ends in /*, and its tag scheme.
type Declared struct {
	Repository string `yaml:"repository"`
	Scheme     string `yaml:"scheme"`
}

// Off is a rule that does not count, and why.
type Off struct {
	Rule   string `yaml:"rule"`
	Reason string `yaml:"reason"`
	// Objects (kind/namespace/name) and Files it is off for, with * as in a shell;
	// empty for all.
	Objects []string `yaml:"objects"`
	Files   []string `yaml:"files"`
}

// ReadConfig reads a configuration file. What it does not know is an error, and
// so is a rule that is switched off without a reason.
func ReadConfig(data []byte) (Config, error) {
	var c Config
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, err
	}
	for i, o := range c.Off {
		if err := o.check(); err != nil {
			return c, fmt.Errorf("off[%d]: %w", i, err)
		}
	}
	for i, s := range c.Schemes {
		if _, err := imagetag.ByName(s.Scheme); err != nil || s.Repository == "" {
			return c, fmt.Errorf("schemes[%d]: repository %q: %w", i, s.Repository, cmp.Or(err, errors.New("no repository is named")))
		}
	}
	err := c.window()
	return c, err
}

func (o Off) check() error {
	switch {
	case !known(o.Rule):
		return fmt.Errorf("there is no rule %q: T01 to T16", o.Rule)
	case strings.TrimSpace(o.Reason) == "":
		return fmt.Errorf("rule %s is switched off without a reason: say why, the next reader wants to know", o.Rule)
	}
	return nil
}

func (c *Config) window() error {
	if c.RollbackWindow == "" {
		return nil
	}
	w, err := time.ParseDuration(c.RollbackWindow)
	if err != nil || w <= 0 {
		return fmt.Errorf("rollbackWindow %q: write a time such as 720h", c.RollbackWindow)
	}
	c.RollbackSeconds = int64(w.Seconds())
	return nil
}

// offReason says why a finding does not count, "" if it does.
func (c Config) offReason(f Finding) string {
	for _, o := range c.Off {
		if o.Rule == f.Rule && anyOf(o.Objects, f.Object) && anyOf(o.Files, f.File) {
			return o.Reason
		}
	}
	return ""
}

// anyOf the patterns, or none given.
func anyOf(patterns []string, s string) bool {
	for _, p := range patterns {
		if match(p, s) {
			return true
		}
	}
	return len(patterns) == 0
}

// match a pattern: /* at its end takes everything below, otherwise * stays within
// a part.
func match(pattern, s string) bool {
	if dir, ok := strings.CutSuffix(pattern, "/*"); ok && strings.HasPrefix(s, dir+"/") {
		return true
	}
	ok, err := path.Match(pattern, s)
	return err == nil && ok
}

// OffAnnotation switches rules off for one object: "T04: rolled by digest; T08: one
// is enough here". Without a reason it switches nothing off.
const OffAnnotation = "refit.dev/lint-off"

// OffOf reads that annotation.
func OffOf(text string) map[string]string {
	out := map[string]string{}
	for part := range strings.SplitSeq(text, ";") {
		rule, reason, _ := strings.Cut(part, ":")
		if rule, reason = strings.TrimSpace(rule), strings.TrimSpace(reason); known(rule) && reason != "" {
			out[rule] = reason
		}
	}
	return out
}

// Scheme that is declared for a repository, by name.
func (c Config) Scheme(repository string) (string, bool) {
	for _, d := range c.Schemes {
		if match(d.Repository, repository) {
			return d.Scheme, true
		}
	}
	if strings.HasPrefix(repository, "registry.k8s.io/") {
		return "single", true // published once per version
	}
	return "", false
}
