package skew

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/osversion"
)

// Modes of a source: who promises that its images are fresh.
const (
	// Automatic: refit keeps the image fresh and knows it.
	Automatic = "Automatic"
	// Manual: a person keeps it fresh and declares the version.
	Manual = "Manual"
	// None: nobody promises anything; the risk was taken.
	None = "None"
)

// Source is one place that machines come from, with the image that the next of
// them starts from.
type Source struct {
	Name string
	Mode string
	// Release that the image belongs to and OS version in it, as text; empty if
	// not known.
	Release, OS string
	// Unknown says why the image is not known, if it is not: custom, excluded.
	Unknown string
	// Published is when the image was made, zero if not known.
	Published time.Time
	// OSStream that its machines are of, empty for the default one.
	OSStream string
	// Facts for incompatibilities, for example runtime=runc.
	Facts map[string]string
	// Machines are facts that its nodes say of their machines.
	Machines []MachineFact
}

// Target is what nodes must run.
type Target struct {
	// Kubernetes version and, if it is another, the platform's Release.
	Kubernetes, Release string
	// OS version that nodes of the target run; empty if the OS stays as it is.
	OS string
	// Known: a stream lists the boot images of the release, of these OSStreams
	// besides the default one.
	Known     bool
	OSStreams []string
}

// Rule is one limit.
type Rule struct {
	// Name by which waivers mean it.
	Name string
	// Targets are minor versions (1.36) of the release, or of Kubernetes, for
	// which the rule holds; empty is every target.
	Targets []string
	// MinimumRelease and MinimumOS of the image. If the image's release is known
	// it decides alone; else the OS version does.
	MinimumRelease, MinimumOS string
	// MinorsBehind is how many minor versions the release of the image may be
	// behind the target's; nil is no limit.
	MinorsBehind *int
	// MajorSteps is how many majors the OS of the image may be behind that of the
	// target; nil is no rule.
	MajorSteps *int
	// MinAge is how long an image must have been published.
	MinAge time.Duration
	// MaxAge is how old an image may be; 0 is no limit.
	MaxAge time.Duration
	// Incompatible is true if a source with all Facts, and an OS of one of the
	// Majors (empty: any), cannot come to the target.
	Incompatible *Incompatible
	// MinimumFacts are the least values of facts of machines.
	MinimumFacts map[string]string
	// Why the rule is there; part of what is said.
	Why string
}

// Incompatible are facts of a source that break with an image or a target.
type Incompatible struct {
	Facts map[string]string
	// TargetMajors of the operating system.
	TargetMajors []int
}

// Waiver is a dated exception.
type Waiver struct {
	// Source by name; a * at the end stands for anything; Rule empty is every one.
	Source, Rule string
	Reason       string
	Until        time.Time
}

// Kinds of a finding.
const (
	TooOld   = "TooOld"
	TooFresh = "TooFresh"
	Unknown  = "Unknown"
	// AgeUnknown: the image must have been out for some time, and it is not known since
	// when it is.
	AgeUnknown   = "AgeUnknown"
	Step         = "MajorStep"
	Breaks       = "Incompatible"
	RuleUnusable = "RuleUnusable"
)

// Finding is a rule that does not hold.
type Finding struct {
	Rule string
	Kind string
	// Message is one sentence without a time that changes.
	Message string
	// Waived by a waiver or because the source is of mode None: said, not blocking.
	Waived string
}

// Input of a judgement.
type Input struct {
	Source  Source
	Target  Target
	Rules   []Rule
	Waivers []Waiver
	Now     time.Time
}

// RuleKnown is the name of the rule that is always there: an image must be known.
const RuleKnown = "image-known"

// RuleMajor is the name of the rule that is there unless another says otherwise:
// at most one major step of the operating system.
const RuleMajor = "one-major-step"

// RuleOSStream is the name of the rule that is always there: the release still has
// images of the OS stream.
const RuleOSStream = "os-stream-there"

// Judge returns every rule that does not hold, in the order of the rules.
func Judge(in Input) []Finding {
	j := judge{in: in}
	j.read()
	if j.releaseErr != nil && j.osErr != nil {
		j.say(RuleKnown, Unknown, "%s", j.unknown())
	}
	j.stream()
	for _, r := range in.rules() {
		if matches(r, in.Target) {
			j.rule(r)
		}
	}
	j.waive()
	return j.found
}

// Blocks reports whether a finding is left that nobody waived.
func Blocks(fs []Finding) bool {
	return slices.ContainsFunc(fs, func(f Finding) bool { return f.Waived == "" })
}

// rules with the one that holds unless another speaks of major steps.
func (in Input) rules() []Rule {
	for _, r := range in.Rules {
		if r.MajorSteps != nil && matches(r, in.Target) {
			return in.Rules
		}
	}
	one := 1
	return append(slices.Clone(in.Rules), Rule{Name: RuleMajor, MajorSteps: &one, Why: "no release is tested from further away"})
}

// matches: a rule for minors holds for a target of that minor. A target that
// cannot be read matches every rule: it is judged, not let off.
func matches(r Rule, t Target) bool {
	if len(r.Targets) == 0 {
		return true
	}
	for _, text := range []string{t.Release, t.Kubernetes} {
		if text == "" {
			continue
		}
		v, err := osversion.Parse(text)
		if err != nil || slices.Contains(r.Targets, v.MajorMinor()) {
			return true
		}
	}
	return false
}

type judge struct {
	in                Input
	release, os       osversion.Version
	releaseErr, osErr error
	found             []Finding
}

func (j *judge) read() {
	s := j.in.Source
	j.release, j.releaseErr = osversion.Parse(s.Release)
	j.os, j.osErr = osversion.Parse(s.OS)
	if s.Unknown != "" {
		err := fmt.Errorf("%s", s.Unknown)
		j.releaseErr, j.osErr = err, err
		return
	}
	if s.Release == "" && j.osErr == nil {
		if r, ok := j.os.Release(); ok { // legacy RHEL CoreOS says its release
			j.release, j.releaseErr = r, nil
		}
	}
}

func (j *judge) unknown() string {
	s := j.in.Source
	if s.Unknown != "" {
		return "it is not known which image it starts machines from: " + s.Unknown
	}
	if s.Release == "" && s.OS == "" {
		return "it is not known which image it starts machines from: nobody has declared or recognised one"
	}
	return fmt.Sprintf("the version of its image cannot be read: release %q, OS %q", s.Release, s.OS)
}

func (j *judge) say(rule, kind, format string, args ...any) {
	j.found = append(j.found, Finding{Rule: rule, Kind: kind, Message: fmt.Sprintf(format, args...)})
}

// stream: a release that has no images of an OS stream has retired it.
func (j *judge) stream() {
	s, t := j.in.Source, j.in.Target
	if s.OSStream == "" || !t.Known || slices.Contains(t.OSStreams, s.OSStream) {
		return
	}
	j.say(RuleOSStream, Breaks, "its machines are of OS stream %s, of which release %s has no boot image", s.OSStream, t.Release)
}

func (j *judge) rule(r Rule) {
	if r.MinimumRelease != "" || r.MinimumOS != "" {
		j.minimum(r)
	}
	if r.MinorsBehind != nil {
		j.minors(r)
	}
	if r.MajorSteps != nil {
		j.majors(r)
	}
	if r.MinAge > 0 || r.MaxAge > 0 {
		j.age(r)
	}
	if r.Incompatible != nil {
		j.incompatible(r)
	}
	if len(r.MinimumFacts) > 0 {
		j.facts(r)
	}
}

// minimum: the release decides if both the rule and the image have one.
func (j *judge) minimum(r Rule) {
	switch {
	case r.MinimumRelease != "" && j.releaseErr == nil:
		j.atLeast(r, "release", j.release, r.MinimumRelease)
	case r.MinimumOS != "" && j.osErr == nil:
		j.atLeast(r, "OS", j.os, r.MinimumOS)
	default:
		want := strings.TrimSpace(strings.Join([]string{named("release", r.MinimumRelease), named("OS", r.MinimumOS)}, " "))
		j.say(r.Name, Unknown, "at least %s is wanted%s, and the image's is not known", want, because(r))
	}
}

func named(what, v string) string {
	if v == "" {
		return ""
	}
	return what + " " + v
}

func because(r Rule) string {
	if r.Why == "" {
		return ""
	}
	return " (" + r.Why + ")"
}

func (j *judge) atLeast(r Rule, what string, have osversion.Version, minimum string) {
	want, err := osversion.Parse(minimum)
	if err != nil {
		j.say(r.Name, RuleUnusable, "the rule itself cannot be read: %v", err)
		return
	}
	c, err := compareMinimum(have, want)
	switch {
	case err != nil:
		j.say(r.Name, Unknown, "%v", err)
	case c < 0:
		j.say(r.Name, TooOld, "its image is of %s %s, at least %s is wanted%s", what, have, want, because(r))
	}
}

// compareMinimum: a minimum may be two numbers of an OS version (9.2), which the
// schemes of builds are compared with by their first two numbers.
func compareMinimum(have, want osversion.Version) (int, error) {
	short := want.Scheme == osversion.SemVer || want.Scheme == osversion.Ubuntu
	if have.Scheme != want.Scheme && short && have.Scheme != osversion.Date && have.Scheme != osversion.SemVer && have.Scheme != osversion.Flatcar {
		return cmp.Or(cmp.Compare(have.Major, want.Major), cmp.Compare(have.Minor, want.Minor)), nil
	}
	return have.Compare(want)
}

// targetRelease is the release of the target in the way the image's is written:
// platforms count otherwise than Kubernetes.
func (j *judge) targetRelease() (osversion.Version, error) {
	text := cmp.Or(j.in.Target.Release, j.in.Target.Kubernetes)
	v, err := osversion.Parse(text)
	if err == nil && j.releaseErr == nil && v.Major != j.release.Major && j.in.Target.Release != "" && j.in.Target.Kubernetes != "" {
		if k, kerr := osversion.Parse(j.in.Target.Kubernetes); kerr == nil && k.Major == j.release.Major {
			return k, nil
		}
	}
	return v, err
}

func (j *judge) minors(r Rule) {
	if j.releaseErr != nil {
		j.say(r.Name, Unknown, "at most %d minor versions behind are wanted%s, and the release of the image is not known", *r.MinorsBehind, because(r))
		return
	}
	t, err := j.targetRelease()
	if err != nil {
		j.say(r.Name, Unknown, "the target cannot be judged: %v", err)
		return
	}
	if t.Major != j.release.Major {
		j.say(r.Name, Unknown, "release %s of the image and %s of the target count differently", j.release, t)
		return
	}
	if behind := t.Minor - j.release.Minor; behind > *r.MinorsBehind {
		j.say(r.Name, TooOld, "its image is of release %s, %d minor versions behind %s; at most %d are wanted%s", j.release, behind, t.MajorMinor(), *r.MinorsBehind, because(r))
	}
}

// majors: nothing is said if the OS of the target is not known, because it then
// stays what it is; an unknown image is said by RuleKnown or here.
func (j *judge) majors(r Rule) {
	if j.in.Target.OS == "" {
		return
	}
	t, err := osversion.Parse(j.in.Target.OS)
	if err != nil {
		j.say(r.Name, Unknown, "the OS of the target cannot be judged: %v", err)
		return
	}
	if j.osErr != nil {
		if j.releaseErr == nil {
			j.say(r.Name, Unknown, "the OS version of its image is not known, so the step to OS %d cannot be judged", t.Major)
		}
		return
	}
	if step := t.Major - j.os.Major; step > *r.MajorSteps || -step > *r.MajorSteps {
		j.say(r.Name, Step, "its image is of OS %d, the target's is %d; at most %d major step(s) are possible%s", j.os.Major, t.Major, *r.MajorSteps, because(r))
	}
}

func (j *judge) age(r Rule) {
	at := j.in.Source.Published
	if at.IsZero() && j.osErr == nil {
		at = j.os.Built
	}
	if at.IsZero() {
		kind := Unknown
		if r.MinAge > 0 {
			kind = AgeUnknown
		}
		j.say(r.Name, kind, "the age of its image is not known%s", because(r))
		return
	}
	age := j.in.Now.Sub(at)
	if r.MinAge > 0 && age < r.MinAge {
		j.say(r.Name, TooFresh, "its image of %s is younger than %s%s", at.UTC().Format(time.DateOnly), days(r.MinAge), because(r))
	}
	if r.MaxAge > 0 && age > r.MaxAge {
		j.say(r.Name, TooOld, "its image of %s is older than %s%s", at.UTC().Format(time.DateOnly), days(r.MaxAge), because(r))
	}
}

func days(d time.Duration) string { return fmt.Sprintf("%d days", int(d.Hours()/24)) }

func (j *judge) incompatible(r Rule) {
	for k, v := range r.Incompatible.Facts {
		if j.in.Source.Facts[k] != v {
			return
		}
	}
	if len(r.Incompatible.TargetMajors) > 0 {
		t, err := osversion.Parse(j.in.Target.OS)
		if j.in.Target.OS == "" || err == nil && !slices.Contains(r.Incompatible.TargetMajors, t.Major) {
			return
		}
	}
	var facts []string
	for k, v := range r.Incompatible.Facts {
		facts = append(facts, k+"="+v)
	}
	slices.Sort(facts)
	j.say(r.Name, Breaks, "%s does not work at the target%s", strings.Join(facts, ", "), because(r))
}

// waive marks what was excepted. A waiver that has ended is as if it were not
// there; a waiver without a reason is none.
func (j *judge) waive() {
	for i := range j.found {
		f := &j.found[i]
		if j.in.Source.Mode == None {
			f.Waived = "the risk was taken: skew is not enforced for this source"
			continue
		}
		for _, w := range j.in.Waivers {
			if covers(w, j.in.Source.Name, f.Rule) && j.in.Now.Before(w.Until) && strings.TrimSpace(w.Reason) != "" {
				f.Waived = "until " + w.Until.UTC().Format(time.RFC3339) + ": " + w.Reason
				break
			}
		}
	}
}

func covers(w Waiver, source, rule string) bool {
	if w.Rule != "" && w.Rule != rule {
		return false
	}
	if p, ok := strings.CutSuffix(w.Source, "*"); ok {
		return strings.HasPrefix(source, p)
	}
	return w.Source == source
}
