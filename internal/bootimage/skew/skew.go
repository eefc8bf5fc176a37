package skew

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/componentversion"
)

// Modes of a source: who keeps its images fresh.
const (
	// Automatic: refit keeps the image fresh and knows it.
	Automatic = "Automatic"
	// Manual: the administrator keeps it fresh and declares the version.
	Manual = "Manual"
	// None: the image is not kept fresh, and the administrator accepts the risk.
	None = "None"
)

// Source is a machine manager, with the image that its next machine starts from.
type Source struct {
	Name string
	Mode string
	// Release that the image belongs to and OS version in it, as text; empty if
	// not known.
	Release, OS string
	// Unknown is why the image is not known: custom, excluded. Empty if it is known.
	Unknown string
	// Installed is the oldest OS version that a node was installed from since the image was
	// declared, InstalledNode is that node; empty if not known.
	Installed, InstalledNode string
	// Published is when the image was published, zero if not known.
	Published time.Time
	// OSStream of its machines, empty for the default one.
	OSStream string
	// Facts for incompatibilities, for example runtime=runc.
	Facts map[string]string
	// Machines are facts that its nodes report.
	Machines []MachineFact
}

// Target is what nodes must run.
type Target struct {
	// Kubernetes version and, if it is another, the platform's Release.
	Kubernetes, Release string
	// OS version of the target's nodes; empty if the OS does not change.
	OS string
	// Known: a stream lists the boot images of the release. OSStreams are its streams
	// other than the default one.
	Known     bool
	OSStreams []string
}

// Rule is one limit.
type Rule struct {
	// Name, as waivers refer to it.
	Name string
	// Targets are the minor versions (1.36) of the release, or of Kubernetes, to which the
	// rule applies; empty means every target.
	Targets []string
	// MinimumRelease and MinimumOS of the image. The release decides if it is known, else
	// the OS version.
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
	// Incompatible: a source with all of these facts cannot move to the target.
	Incompatible *Incompatible
	// MinimumFacts are the lowest allowed values of machine facts.
	MinimumFacts map[string]string
	// Why the rule exists; it ends the message.
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
	// Source by name, with * at the end for any suffix. An empty Rule means every rule.
	Source, Rule string
	Reason       string
	Until        time.Time
}

// Kinds of a finding.
const (
	TooOld   = "TooOld"
	TooFresh = "TooFresh"
	Unknown  = "Unknown"
	// AgeUnknown: the rule has a minimum age, and the image's publication time is not known.
	AgeUnknown   = "AgeUnknown"
	Step         = "MajorStep"
	Breaks       = "Incompatible"
	RuleUnusable = "RuleUnusable"
)

// Finding is a violated rule.
type Finding struct {
	Rule string
	Kind string
	// Message is one sentence without a time that changes.
	Message string
	// Waived is why the finding does not block: a waiver, or the source's mode None.
	Waived string
}

// Input of Evaluate.
type Input struct {
	Source  Source
	Target  Target
	Rules   []Rule
	Waivers []Waiver
	Now     time.Time
}

// RuleKnown is the name of a built-in rule: the image must be known.
const RuleKnown = "image-known"

// RuleMajor is the name of a built-in rule: at most one major step of the operating system.
// Another rule about major steps replaces it.
const RuleMajor = "one-major-step"

// RuleOSStream is the name of a built-in rule: the release still has images of the OS stream.
const RuleOSStream = "os-stream-there"

// Evaluate returns every violated rule, in the order of the rules.
func Evaluate(in Input) []Finding {
	j := checker{in: in}
	j.parseVersions()
	if j.releaseErr != nil && j.osErr != nil {
		j.addFinding(RuleKnown, Unknown, "%s", j.describeUnknown())
	}
	j.checkOSStream()
	for _, r := range in.rules() {
		if matches(r, in.Target) {
			j.checkRule(r)
		}
	}
	j.applyWaivers()
	return j.findings
}

// MinimumAge is how old a rule requires an image to be.
type MinimumAge struct {
	Rule string
	// Age is zero without such a rule.
	Age time.Duration
	// Built is when the image was published or built, zero if that is not known.
	Built time.Time
}

// RequiredAge returns the highest minimum age that a rule without a waiver requires of the
// image.
func RequiredAge(in Input) MinimumAge {
	j := checker{in: in}
	j.parseVersions()
	out := MinimumAge{}
	for _, r := range in.Rules {
		if r.MinAge > out.Age && matches(r, in.Target) && in.waiver(r.Name) == "" {
			out = MinimumAge{Rule: r.Name, Age: r.MinAge, Built: j.built()}
		}
	}
	return out
}

// Blocks reports whether one of the findings is not waived.
func Blocks(fs []Finding) bool {
	return slices.ContainsFunc(fs, func(f Finding) bool { return f.Waived == "" })
}

// rules adds RuleMajor unless a rule about major steps applies to the target.
func (in Input) rules() []Rule {
	for _, r := range in.Rules {
		if r.MajorSteps != nil && matches(r, in.Target) {
			return in.Rules
		}
	}
	one := 1
	return append(slices.Clone(in.Rules), Rule{Name: RuleMajor, MajorSteps: &one, Why: "no release is tested over a larger step"})
}

// matches reports whether a rule applies to a target's minor version. Every rule applies to
// an unreadable target, so that it cannot pass unchecked.
func matches(r Rule, t Target) bool {
	if len(r.Targets) == 0 {
		return true
	}
	for _, text := range []string{t.Release, t.Kubernetes} {
		if text == "" {
			continue
		}
		v, err := componentversion.ParseOS(text)
		if err != nil || slices.Contains(r.Targets, v.MajorMinor()) {
			return true
		}
	}
	return false
}

type checker struct {
	in                Input
	release, os       componentversion.OSVersion
	releaseErr, osErr error
	// installed: release and os are those of a node, not the stated ones.
	installed bool
	findings  []Finding
}

func (j *checker) parseVersions() {
	s := j.in.Source
	j.release, j.releaseErr = componentversion.ParseOS(s.Release)
	j.os, j.osErr = componentversion.ParseOS(s.OS)
	if s.Unknown != "" {
		err := fmt.Errorf("%s", s.Unknown)
		j.releaseErr, j.osErr = err, err
		return
	}
	j.countOwnRelease()
	j.countInstalled()
}

// countOwnRelease: versions of legacy RHEL CoreOS contain the minor version of the release of
// the image. It counts if it is older than the stated one.
func (j *checker) countOwnRelease() {
	own, ok := j.os.Release()
	if j.osErr == nil && ok && (j.in.Source.Release == "" || j.releaseErr == nil && isOlderMinor(own, j.release)) {
		j.release, j.releaseErr = own, nil
	}
}

// countInstalled: if a node was installed from an older image than the stated one, that image
// counts. Its release is known only if its OS version contains one.
func (j *checker) countInstalled() {
	v, err := componentversion.ParseOS(j.in.Source.Installed)
	if err != nil || j.osErr == nil && !isOlder(v, j.os) {
		return
	}
	own, ok := v.Release()
	switch {
	case ok && (j.in.Source.Release == "" || j.releaseErr == nil && isOlderMinor(own, j.release)):
		j.release, j.releaseErr = own, nil
	case !ok && j.osErr == nil: // the stated release is that of a newer image
		j.releaseErr = fmt.Errorf("the release of OS %s is not known", v)
	}
	j.os, j.osErr, j.installed = v, nil, true
}

// isOlder reports whether a is older than b; versions that cannot be compared are not.
func isOlder(a, b componentversion.OSVersion) bool {
	c, err := a.Compare(b)
	return err == nil && c < 0
}

func isOlderMinor(a, b componentversion.OSVersion) bool {
	return isOlder(a, b) && a.MajorMinor() != b.MajorMinor()
}

// image names the image that counts.
func (j *checker) image() string {
	if j.installed && j.in.Source.InstalledNode != "" {
		return "the image that node " + j.in.Source.InstalledNode + " was installed from"
	}
	return "its image"
}

func (j *checker) describeUnknown() string {
	s := j.in.Source
	if s.Unknown != "" {
		return "it is not known which image it starts machines from: " + s.Unknown
	}
	if s.Release == "" && s.OS == "" {
		return "it is not known which image it starts machines from: no stream lists it, and no image is declared"
	}
	return fmt.Sprintf("the version of its image is unreadable: release %q, OS %q", s.Release, s.OS)
}

func (j *checker) addFinding(rule, kind, format string, args ...any) {
	j.findings = append(j.findings, Finding{Rule: rule, Kind: kind, Message: fmt.Sprintf(format, args...)})
}

// checkOSStream: a release without images of an OS stream has retired it.
func (j *checker) checkOSStream() {
	s, t := j.in.Source, j.in.Target
	if s.OSStream == "" || !t.Known || slices.Contains(t.OSStreams, s.OSStream) {
		return
	}
	j.addFinding(RuleOSStream, Breaks, "its machines are of OS stream %s, of which release %s has no boot image", s.OSStream, t.Release)
}

func (j *checker) checkRule(r Rule) {
	if r.MinimumRelease != "" || r.MinimumOS != "" {
		j.checkMinimum(r)
	}
	if r.MinorsBehind != nil {
		j.checkMinors(r)
	}
	if r.MajorSteps != nil {
		j.checkMajors(r)
	}
	if r.MinAge > 0 || r.MaxAge > 0 {
		j.checkAge(r)
	}
	if r.Incompatible != nil {
		j.checkIncompatible(r)
	}
	if len(r.MinimumFacts) > 0 {
		j.checkFacts(r)
	}
}

// checkMinimum compares releases if both the rule and the image have one, else OS versions.
func (j *checker) checkMinimum(r Rule) {
	switch {
	case r.MinimumRelease != "" && j.releaseErr == nil:
		j.requireAtLeast(r, "release", j.release, r.MinimumRelease)
	case r.MinimumOS != "" && j.osErr == nil:
		j.requireAtLeast(r, "OS", j.os, r.MinimumOS)
	default:
		want := strings.TrimSpace(strings.Join([]string{labelled("release", r.MinimumRelease), labelled("OS", r.MinimumOS)}, " "))
		j.addFinding(r.Name, Unknown, "at least %s is wanted%s, and the image's is not known", want, reasonSuffix(r))
	}
}

func labelled(what, v string) string {
	if v == "" {
		return ""
	}
	return what + " " + v
}

func reasonSuffix(r Rule) string {
	if r.Why == "" {
		return ""
	}
	return " (" + r.Why + ")"
}

func (j *checker) requireAtLeast(r Rule, what string, have componentversion.OSVersion, minimum string) {
	want, err := componentversion.ParseOS(minimum)
	if err != nil {
		j.addFinding(r.Name, RuleUnusable, "the rule is unreadable: %v", err)
		return
	}
	c, err := compareMinimum(have, want)
	switch {
	case err != nil:
		j.addFinding(r.Name, Unknown, "%v", err)
	case c < 0:
		j.addFinding(r.Name, TooOld, "%s is of %s %s, at least %s is wanted%s", j.image(), what, have, want, reasonSuffix(r))
	}
}

// compareMinimum compares a build with a minimum that may be only two numbers (9.2); then
// only the first two numbers count.
func compareMinimum(have, want componentversion.OSVersion) (int, error) {
	short := want.Scheme == componentversion.SemVer || want.Scheme == componentversion.Ubuntu
	if have.Scheme != want.Scheme && short && have.Scheme != componentversion.Date && have.Scheme != componentversion.SemVer && have.Scheme != componentversion.Flatcar {
		return cmp.Or(cmp.Compare(have.Major, want.Major), cmp.Compare(have.Minor, want.Minor)), nil
	}
	return have.Compare(want)
}

// targetRelease returns the target's platform release or Kubernetes version, in the
// numbering that the image uses.
func (j *checker) targetRelease() (componentversion.OSVersion, error) {
	text := cmp.Or(j.in.Target.Release, j.in.Target.Kubernetes)
	v, err := componentversion.ParseOS(text)
	if err == nil && j.releaseErr == nil && v.Major != j.release.Major && j.in.Target.Release != "" && j.in.Target.Kubernetes != "" {
		if k, kerr := componentversion.ParseOS(j.in.Target.Kubernetes); kerr == nil && k.Major == j.release.Major {
			return k, nil
		}
	}
	return v, err
}

func (j *checker) checkMinors(r Rule) {
	if j.releaseErr != nil {
		j.addFinding(r.Name, Unknown, "at most %d minor versions behind are wanted%s, and the release of the image is not known", *r.MinorsBehind, reasonSuffix(r))
		return
	}
	t, err := j.targetRelease()
	if err != nil {
		j.addFinding(r.Name, Unknown, "the target's version is unreadable: %v", err)
		return
	}
	if t.Major != j.release.Major {
		j.addFinding(r.Name, Unknown, "release %s of the image and %s of the target count differently", j.release, t)
		return
	}
	if behind := t.Minor - j.release.Minor; behind > *r.MinorsBehind {
		j.addFinding(r.Name, TooOld, "%s is of release %s, %d minor versions behind %s; at most %d are wanted%s", j.image(), j.release, behind, t.MajorMinor(), *r.MinorsBehind, reasonSuffix(r))
	}
}

// checkMajors passes a target without an OS version, because the OS does not change then. It
// reports an unknown OS of the image unless RuleKnown does.
func (j *checker) checkMajors(r Rule) {
	if j.in.Target.OS == "" {
		return
	}
	t, err := componentversion.ParseOS(j.in.Target.OS)
	if err != nil {
		j.addFinding(r.Name, Unknown, "the OS version of the target is unreadable: %v", err)
		return
	}
	if j.osErr != nil {
		if j.releaseErr == nil {
			j.addFinding(r.Name, Unknown, "the OS version of its image is not known, so the step to OS %d cannot be checked", t.Major)
		}
		return
	}
	if step := t.Major - j.os.Major; step > *r.MajorSteps || -step > *r.MajorSteps {
		j.addFinding(r.Name, Step, "%s is of OS %d, the target's is %d; at most %d major step(s) are possible%s", j.image(), j.os.Major, t.Major, *r.MajorSteps, reasonSuffix(r))
	}
}

// built returns when the image was published, else the day in its OS version.
func (j *checker) built() time.Time {
	if at := j.in.Source.Published; !at.IsZero() || j.osErr != nil {
		return at
	}
	return j.os.Built
}

func (j *checker) checkAge(r Rule) {
	at := j.built()
	if at.IsZero() {
		kind := Unknown
		if r.MinAge > 0 {
			kind = AgeUnknown
		}
		j.addFinding(r.Name, kind, "the age of its image is not known%s", reasonSuffix(r))
		return
	}
	age := j.in.Now.Sub(at)
	if r.MinAge > 0 && age < r.MinAge {
		j.addFinding(r.Name, TooFresh, "its image of %s is younger than %s%s", at.UTC().Format(time.DateOnly), days(r.MinAge), reasonSuffix(r))
	}
	if r.MaxAge > 0 && age > r.MaxAge {
		j.addFinding(r.Name, TooOld, "its image of %s is older than %s%s", at.UTC().Format(time.DateOnly), days(r.MaxAge), reasonSuffix(r))
	}
}

func days(d time.Duration) string { return fmt.Sprintf("%d days", int(d.Hours()/24)) }

func (j *checker) checkIncompatible(r Rule) {
	for k, v := range r.Incompatible.Facts {
		if j.in.Source.Facts[k] != v {
			return
		}
	}
	if len(r.Incompatible.TargetMajors) > 0 {
		t, err := componentversion.ParseOS(j.in.Target.OS)
		if j.in.Target.OS == "" || err == nil && !slices.Contains(r.Incompatible.TargetMajors, t.Major) {
			return
		}
	}
	var facts []string
	for k, v := range r.Incompatible.Facts {
		facts = append(facts, k+"="+v)
	}
	slices.Sort(facts)
	j.addFinding(r.Name, Breaks, "%s does not work at the target%s", strings.Join(facts, ", "), reasonSuffix(r))
}

func (j *checker) applyWaivers() {
	for i := range j.findings {
		j.findings[i].Waived = j.in.waiver(j.findings[i].Rule)
	}
}

// waiver returns why a rule does not block, empty if it does. An expired waiver and one without
// a reason do not count.
func (in Input) waiver(rule string) string {
	if in.Source.Mode == None {
		return "the administrator accepted the risk: skew is not enforced for this source"
	}
	for _, w := range in.Waivers {
		if covers(w, in.Source.Name, rule) && in.Now.Before(w.Until) && strings.TrimSpace(w.Reason) != "" {
			return "until " + w.Until.UTC().Format(time.RFC3339) + ": " + w.Reason
		}
	}
	return ""
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
