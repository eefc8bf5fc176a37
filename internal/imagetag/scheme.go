package imagetag

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Tier of a tag: how much of an image it names.
type Tier string

// Tiers. Only Long is a point: made once, never moved.
const (
	Floating     Tier = "floating"     // latest, stable; an aggregate such as 2.6 where the scheme knows it is one
	Short        Tier = "short"        // the application's version
	Intermediate Tier = "intermediate" // and the definition's revision, or the variant
	Long         Tier = "long"         // and the build: one image
)

// Tag is a tag, read under a scheme. Parts that the scheme does not have are
// empty.
type Tag struct {
	Text    string   `json:"text"`
	Scheme  string   `json:"scheme"`
	Tier    Tier     `json:"tier"`
	App     string   `json:"app,omitempty"`
	Variant string   `json:"variant,omitempty"`
	Rev     uint64   `json:"rev,omitempty"` // revisions begin with 1
	Build   []uint64 `json:"build,omitempty"`
}

// Point says whether the tag names one build, so that it has a place in the
// order.
func (t Tag) Point() bool { return t.Tier == Long }

// BuildText is the build as it stands in a tag: 5.1.
func (t Tag) BuildText() string {
	parts := make([]string, len(t.Build))
	for i, n := range t.Build {
		parts[i] = strconv.FormatUint(n, 10)
	}
	return strings.Join(parts, ".")
}

// Scheme is the way a repository writes its tags. It is declared by a person;
// the zero Scheme reads nothing.
type Scheme struct {
	name     string
	pattern  *regexp.Regexp
	variants []string                  // only these are cut off the application's part
	check    func(t *Tag) error        // what the pattern cannot say, nil if nothing
	write    func(t Tag) (text string) // nil: tags can be read, not written
}

var (
	num     = `\d+(?:\.\d+)*`
	schemes = map[string]Scheme{
		"rev":      {pattern: regexp.MustCompile(`^(?P<app>.+?)(?:-rev(?P<rev>\d+)(?:-b(?P<build>` + num + `))?)?$`), check: noRevInside, write: writer("-rev", "-b")},
		"dotted":   {pattern: regexp.MustCompile(`^(?P<app>.+?)(?:-(?P<rev>\d+)(?:\.(?P<build>` + num + `))?)?$`), write: writer("-", ".")},
		"dashed":   {pattern: regexp.MustCompile(`^(?P<app>.+?)(?:-(?P<rev>\d+)(?:-(?P<build>` + num + `))?)?$`), write: writer("-", "-")},
		"release":  {pattern: regexp.MustCompile(`^(?P<app>.+?)(?:-(?P<build>` + num + `))?$`), write: writer("", "-")},
		"distro-r": {pattern: regexp.MustCompile(`^(?P<app>.+?)(?:-(?P<variant>[a-z]+-\d+))?(?:-r(?P<build>\d+))?$`), write: writer("", "-r")},
		"single":   {pattern: regexp.MustCompile(`^(?P<app>.+)$`), write: writer("", "")},
		"semver":   {pattern: regexp.MustCompile(`^(?P<app>.+)$`), check: semantic, write: writer("", "")},
		"date":     {pattern: regexp.MustCompile(`^(?P<app>\d{8}|\d{4}-\d\d-\d\d|\d{4}\.\d\d\.\d\d|\d{6}|\d{4}[-.]\d\d)(?:[.-](?P<build>` + num + `))?$`), check: aDay, write: writer("", ".")},
		"floating": {pattern: regexp.MustCompile(`^(?P<app>.+)$`), check: float},
	}
)

// Names of the schemes that need no declaration of their own, sorted.
func Names() []string {
	names := make([]string, 0, len(schemes))
	for n := range schemes {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// ByName finds a scheme: one of Names; with the variants that its repository
// has, as in rev:alpine,slim; or regexp: and an expression with the named groups
// app, variant, rev and build.
func ByName(name string) (Scheme, error) {
	head, rest, more := strings.Cut(name, ":")
	if head == "regexp" && more {
		return Custom(name, rest)
	}
	s, ok := schemes[head]
	if !ok {
		return Scheme{}, fmt.Errorf("tag scheme %q is not known: use one of %s, or regexp:EXPRESSION with groups app, variant, rev, build", name, strings.Join(Names(), ", "))
	}
	s.name = name
	if !more {
		return s, nil
	}
	s.variants = strings.Split(rest, ",")
	for _, v := range s.variants {
		if err := Legal(v); err != nil {
			return Scheme{}, fmt.Errorf("variant of tag scheme %q: %w", name, err)
		}
	}
	// The longest first: of slim and alpine-slim, the second is the variant of 3-alpine-slim.
	slices.SortFunc(s.variants, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) })
	return s, nil
}

// Custom is a scheme that a person declares by an expression (RE2, it has to fit
// the whole tag) with the named groups app (it must exist), variant, rev and
// build. The finest of app, rev and build that the expression has makes a tag a
// point. Tags of such a scheme are read, never written.
func Custom(name, expression string) (Scheme, error) {
	re, err := regexp.Compile(`^(?:` + expression + `)$`)
	if err != nil {
		return Scheme{}, fmt.Errorf("tag scheme %q: %w", name, err)
	}
	for _, g := range re.SubexpNames() {
		if g != "" && !slices.Contains([]string{"app", "variant", "rev", "build"}, g) {
			return Scheme{}, fmt.Errorf("tag scheme %q: group %q is not known: use app, variant, rev, build", name, g)
		}
	}
	if re.SubexpIndex("app") < 0 {
		return Scheme{}, fmt.Errorf("tag scheme %q: it has no group (?P<app>...), so no tag of it has a version", name)
	}
	return Scheme{name: name, pattern: re}, nil
}

// Name of the scheme as it was declared, "" for the zero Scheme.
func (s Scheme) Name() string { return s.name }

// Parse reads a tag. Legal text that does not begin with a version (latest) is a
// Floating tag in every scheme. Illegal text is an error, as is a version that
// breaks the scheme's rules.
func (s Scheme) Parse(text string) (Tag, error) {
	if s.pattern == nil {
		return Tag{}, errors.New("no tag scheme is declared: say how this repository writes its tags")
	}
	if err := Legal(text); err != nil {
		return Tag{}, err
	}
	m := s.pattern.FindStringSubmatch(text)
	if m == nil {
		if _, ok := parseVersion(text); ok {
			return Tag{}, fmt.Errorf("tag %q is not one of scheme %s", text, s.name)
		}
		return Tag{Text: text, Scheme: s.name, Tier: Floating, App: text}, nil
	}
	t, err := s.parts(text, m)
	if err != nil {
		return Tag{}, fmt.Errorf("tag %q is not one of scheme %s: %w", text, s.name, err)
	}
	return t, nil
}

// parts of a tag that fits the pattern.
func (s Scheme) parts(text string, m []string) (Tag, error) {
	t := Tag{Text: text, Scheme: s.name, App: s.group(m, "app"), Variant: s.group(m, "variant")}
	if rev := s.group(m, "rev"); rev != "" {
		list, err := numberList(rev, true)
		if err != nil {
			return t, fmt.Errorf("revision: %w", err)
		}
		if t.Rev = list[0]; t.Rev == 0 {
			return t, errors.New("revision: it begins with 1")
		}
	}
	if build := s.group(m, "build"); build != "" {
		var err error
		if t.Build, err = numberList(build, true); err != nil {
			return t, fmt.Errorf("build: %w", err)
		}
	}
	for _, v := range s.variants {
		if app, ok := strings.CutSuffix(t.App, "-"+v); ok && app != "" {
			t.App, t.Variant = app, v
			break
		}
	}
	t.Tier = s.tier(t)
	if s.check != nil {
		if err := s.check(&t); err != nil {
			return t, err
		}
	}
	return t, nil
}

func (s Scheme) group(m []string, name string) string {
	if i := s.pattern.SubexpIndex(name); i >= 0 {
		return m[i]
	}
	return ""
}

// HasRev says whether tags of the scheme tell a revision of the image definition.
func (s Scheme) HasRev() bool { return s.has("rev") }

// HasBuild says whether they tell a build: without, a rebuild has no name of its own.
func (s Scheme) HasBuild() bool { return s.has("build") }

// CanWrite says whether tags of the scheme can be made, not only read.
func (s Scheme) CanWrite() bool { return s.write != nil }

func (s Scheme) has(group string) bool {
	return s.pattern != nil && s.pattern.SubexpIndex(group) >= 0
}

// tier of a tag by its parts and by the finest part that the scheme has.
func (s Scheme) tier(t Tag) Tier {
	_, versioned := parseVersion(t.App)
	switch {
	case s.has("build") && t.Build != nil, !s.has("build") && s.has("rev") && t.Rev > 0:
		return Long
	case t.Rev > 0, s.has("variant") && t.Variant != "" && s.has("build"):
		return Intermediate
	case !versioned:
		return Floating
	case s.has("build"), s.has("rev"), s.name == "floating":
		return Short
	}
	return Long
}

// Write makes the text of a tag from its parts; what is missing makes it a
// pointer. A declared expression can read tags only.
func (s Scheme) Write(t Tag) (string, error) {
	if s.write == nil {
		return "", fmt.Errorf("scheme %s can read tags, not write them: publish under one of rev, dotted, release, distro-r, semver, date", s.name)
	}
	text := s.write(t)
	back, err := s.Parse(text)
	if err != nil {
		return "", err
	}
	if back.App != t.App || back.Variant != t.Variant || back.Rev != t.Rev || slices.Compare(back.Build, t.Build) != 0 {
		return "", fmt.Errorf("tag %q would be read as version %s, revision %d, build %s: choose another form for version %q", text, back.App, back.Rev, back.BuildText(), t.App)
	}
	return text, nil
}

// Pointers that follow from a long tag, the finest first: 2.6.2-rev1 and 2.6.2
// of 2.6.2-rev1-b5.1. Schemes whose tags never move have none.
func (s Scheme) Pointers(long string) ([]string, error) {
	t, err := s.Parse(long)
	if err != nil {
		return nil, err
	}
	if !t.Point() {
		return nil, fmt.Errorf("tag %q is a pointer itself (%s): pointers follow from long tags", long, t.Tier)
	}
	var out []string
	add := func(p Tag) error {
		text, err := s.Write(p)
		if err != nil {
			return err
		}
		back, err := s.Parse(text)
		if err == nil && !back.Point() && !slices.Contains(out, text) {
			out = append(out, text)
		}
		return err
	}
	t.Build = nil
	if err := add(t); err != nil {
		return nil, err
	}
	t.Rev = 0
	if s.has("variant") {
		t.Variant = "" // of 1.2.3-debian-12-r7: 1.2.3
	}
	return out, add(t)
}

// IsRelease says whether an application's version is a release that latest and
// aggregates may name: no pre-release, nothing that may be one, no other word.
func IsRelease(app string) bool {
	v, ok := parseVersion(app)
	return ok && (v.kind == release || v.kind == attached)
}

// Aggregates are the shorter names of a version: 2.6 and 2 of 2.6.2, none of a
// pre-release.
func Aggregates(app string) []string {
	v, ok := parseVersion(app)
	if !ok || v.kind != release {
		return nil
	}
	var out []string
	for i := strings.LastIndexByte(app, '.'); i > 0; i = strings.LastIndexByte(app, '.') {
		app = app[:i]
		out = append(out, app)
	}
	return out
}

// writer of tags with these marks before revision and build; a mark that is ""
// leaves the part out.
func writer(rev, build string) func(Tag) string {
	return func(t Tag) string {
		out := t.App
		if t.Variant != "" {
			out += "-" + t.Variant
		}
		if rev != "" && t.Rev > 0 {
			out += rev + strconv.FormatUint(t.Rev, 10)
		}
		if build != "" && t.Build != nil {
			out += build + t.BuildText()
		}
		return out
	}
}

var revInside = regexp.MustCompile(`-rev\d`)

// noRevInside refuses 2.6.2-rev1-b and 1-rev1-rev2: half a long tag is no
// application version.
func noRevInside(t *Tag) error {
	if revInside.MatchString(t.App) {
		return fmt.Errorf("-rev stands inside %q: it is followed by a number, then by -b and numbers with dots, then by nothing", t.App)
	}
	return nil
}

var semverText = regexp.MustCompile(`^v?(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?(?:_[0-9A-Za-z-]+(?:[._][0-9A-Za-z-]+)*)?$`)

func semantic(t *Tag) error {
	v, ok := parseVersion(t.App)
	switch {
	case !ok:
	case v.kind == release && len(v.numbers) < 3:
		t.Tier = Floating // 2.6 stands for many
	case !semverText.MatchString(t.App):
		return errors.New("it is no semantic version: three numbers without leading zeros, then - and a pre-release, then _ and build metadata")
	}
	return nil
}

func aDay(t *Tag) error {
	digits := dateDigits(t.App)
	if len(digits) < 8 {
		if t.Build != nil {
			return errors.New("a build follows a day, not a month")
		}
		t.Tier = Floating // a month stands for many days
		_, err := time.Parse("200601", digits)
		return err
	}
	if t.Build == nil {
		t.Tier = Long
	}
	_, err := time.Parse("20060102", digits)
	return err
}

func dateDigits(s string) string { return strings.NewReplacer("-", "", ".", "").Replace(s) }

func float(t *Tag) error {
	t.Tier = Floating
	return nil
}
