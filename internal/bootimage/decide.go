package bootimage

import (
	"fmt"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/componentversion"
)

// Modes, as in the API.
const (
	Observe         = "Observe"
	NewMachinesOnly = "NewMachinesOnly"
	Piggyback       = "Piggyback"
	Roll            = "Roll"
	Propose         = "Propose"
)

// Effects of a change, as the table of machine kinds lists them.
const (
	newMachines = "NewMachines"
	drifts      = "Drifts"
)

// Actions.
const (
	// Leave the object unchanged.
	Leave = "Leave"
	// Write the wanted image, and Decision.Version with it if it is set.
	Write = "Write"
	// Stage a template, so that one later write switches to it.
	Stage = "Stage"
	// Suggest a patch, and write nothing.
	Suggest = "Suggest"
	// Boot one machine from the image first: the canary.
	Boot = "Boot"
)

// States of a source. Every source is in one of them.
const (
	Current   = "Current"
	Outdated  = "Outdated"
	Skipped   = "Skipped"
	Excluded  = "Excluded"
	Unknown   = "Unknown"
	Contested = "Contested"
)

// Reason words of the catalogue.
const (
	reasonAsExpected   = "AsExpected"
	reasonCanary       = "BootImageCanary"
	reasonCanaryFailed = "BootImageCanaryFailed"
	reasonContested    = "BootImageContested"
	reasonCustom       = "BootImageCustom"
	reasonExcluded     = "BootImageExcluded"
	reasonNewer        = "BootImageNewer"
	reasonNotUploaded  = "BootImageNotUploaded"
	reasonOutdated     = "BootImageOutdated"
	reasonOwned        = "BootImageOwned"
	reasonRefused      = "BootImageRefused"
	reasonRolledBack   = "BootImageRolledBack"
	reasonWouldReplace = "WouldReplaceMachines"
	reasonStaged       = "BootImageStaged"
	reasonTooFresh     = "BootImageTooFresh"
	reasonTooOld       = "BootImageTooOld"
	reasonUnknown      = "BootImageUnknown"
	reasonUpdateRuns   = "BootImageUpdateRunning"
	reasonWritten      = "BootImageWritten"
	reasonUserData     = "UserDataUnusable"
	reasonSkew         = "VersionSkew"
)

// Image of a machine manager. Unknown fields are empty.
type Image struct {
	// Text is the platform's name of the image.
	Text string
	// OS version in the image, and the Release that it belongs to.
	OS, Release string
}

// Past is an earlier write.
type Past struct {
	At time.Time
	To string
}

// Contest limits how often refit writes a value that another writer reverts: at most Writes
// within Window, then a pause until neither side has written for Quiet.
type Contest struct {
	Writes        int
	Window, Quiet time.Duration
}

// MinimumAge is how old an image must be before refit writes it.
type MinimumAge struct {
	// Rule that requires it. Age is zero if none does.
	Rule string
	Age  time.Duration
	// Built is when the image was built, zero if that is not known.
	Built time.Time
}

// Wait is what a write waits for; the zero value is nothing.
type Wait struct {
	// Built is when the image was built, and Until when it is old enough.
	Built, Until time.Time
	// For is the update or the rollout that must end first.
	For string
}

// Input has the facts about one machine manager.
type Input struct {
	Now  time.Time
	Mode string
	// Deleting: the object has a deletion timestamp.
	Deleting bool
	// Excluded is why refit must not manage it.
	Excluded string
	// Owner is the other writer of the object or the field, empty for none.
	Owner string
	// Effect of a change of the image; DriftHeld: a budget keeps Karpenter from replacing
	// drifted nodes.
	Effect    string
	DriftHeld bool
	// Current image; Recognised: a stream lists it or refit wrote it. Same: it is the
	// wanted one.
	Current    Image
	Recognised bool
	Same       bool
	Adopt      bool
	// Wanted image; WantedErr is why there is none.
	Wanted    Image
	WantedErr string
	// Refused is why refit never writes the wanted image, empty if it may.
	Refused string
	// Rollback is the reason that Wanted is an earlier image, nil if a stream wants it.
	// RollbackBlocked is why machines from it could not join.
	Rollback        *Rollback
	RollbackBlocked string
	// Version of the object's machines, empty if it has none, and WantedVersion that the
	// user asked for.
	Version, WantedVersion string
	// TargetBlocked is why refit refuses a move to WantedVersion.
	TargetBlocked string
	// NotUploaded: the wanted image is a file that the administrator must upload to the
	// platform first.
	NotUploaded bool
	// MinimumAge of the wanted image. Written earlier, the image would block the next update.
	MinimumAge MinimumAge
	// Running is an update of the cluster's nodes, or a rollout of the object's machines, as
	// Kind/name; empty for none.
	Running string
	// Canary is the machine that tries the image first, nil if the policy wants none.
	Canary *Canary
	// UserData is why the first-boot configuration does not work with the wanted image.
	UserData string
	// MadeIgnition is the version of Ignition of the first-boot configurations that MadeBy, a
	// template, asks for; empty if it names none.
	MadeIgnition, MadeBy string
	// WindowOpen is false while mode Roll must wait.
	WindowOpen bool
	// Past writes to this object, the writer that reverted the last one, and the time of
	// that writer's last write.
	Past      []Past
	UndoneBy  string
	ForeignAt time.Time
	Contest   Contest
}

// Decision about one manager.
type Decision struct {
	Action string
	State  string
	// Version to write together with the image, empty for none.
	Version              string
	Reason, Message, Fix string
	Wait                 Wait
	// Canary is its outcome, empty without one, and CanaryFailure why its machine failed.
	Canary, CanaryFailure string
}

// Decide returns the first decision that applies; without an objection refit writes. A write
// waits while an update or a rollout runs: a failure must not have two causes. A rollback does
// not wait, because it may be the fix, unless it moves the version too.
func Decide(in Input) Decision {
	d := tryFirst(&in, decide(in))
	if in.Running == "" || d.Action != Write && d.Action != Boot || in.Rollback != nil && d.Version == "" {
		return d
	}
	return waitForUpdate(&in, d.State)
}

func waitForUpdate(in *Input, state string) Decision {
	return Decision{Action: Leave, State: state, Reason: reasonUpdateRuns, Message: fmt.Sprintf("it uses %s; refit writes %s when %s has ended", describeImage(in.Current), describeImage(in.Wanted), in.Running),
		Fix: "wait until it has ended, or end it", Wait: Wait{For: in.Running}}
}

func decide(in Input) Decision {
	for _, ask := range []func(*Input) (Decision, bool){excluded, unwanted, refused, moveVersion, alreadyWanted, newer, custom, rollbackTooOld, notUploaded, tooFresh, ownedByOthers, observed, contested, userData} {
		if d, ok := ask(&in); ok {
			return d
		}
	}
	return decideWrite(&in)
}

func excluded(in *Input) (Decision, bool) {
	switch {
	case in.Deleting:
		return Decision{Action: Leave, State: Excluded, Reason: reasonExcluded, Message: "it is being deleted"}, true
	case in.Excluded != "":
		return Decision{Action: Leave, State: Excluded, Reason: reasonExcluded, Message: in.Excluded,
			Fix: "declare its image in the MachineSource if updates are to check it"}, true
	}
	return Decision{}, false
}

func unwanted(in *Input) (Decision, bool) {
	if in.WantedErr == "" {
		return Decision{}, false
	}
	return Decision{Action: Leave, State: Unknown, Reason: reasonUnknown, Message: in.WantedErr, Fix: "add what is missing to the policy, the stream or the object"}, true
}

// refused: refit never writes an image that the policy refuses, and reports one that is in use.
func refused(in *Input) (Decision, bool) {
	if in.Refused == "" {
		return Decision{}, false
	}
	d := Decision{Action: Leave, State: Outdated, Reason: reasonRefused, Message: fmt.Sprintf("it uses %s; the policy refuses %s: %s", describeImage(in.Current), describeImage(in.Wanted), in.Refused),
		Fix: "wait until the stream has a newer image, or correct spec.refused of the policy"}
	if in.Same {
		d.Message = fmt.Sprintf("it uses %s, which the policy refuses: %s", describeImage(in.Wanted), in.Refused)
		d.Fix = "return to the previous image (refit bootimage rollback), or wait until the stream has a newer one"
	}
	return d, true
}

// moveVersion: mode Piggyback writes a requested version together with the image, also if
// the image is the wanted one already.
func moveVersion(in *Input) (Decision, bool) {
	if in.Mode != Piggyback || in.WantedVersion == "" || in.WantedVersion == in.Version || in.Owner != "" {
		return Decision{}, false
	}
	state := Outdated
	if in.Same {
		state = Current
	}
	if why := checkVersionStep(in.Version, in.WantedVersion); why != "" {
		return Decision{Action: Leave, State: state, Reason: reasonSkew, Message: why, Fix: "correct the annotation refit.dev/wanted-version"}, true
	}
	if in.TargetBlocked != "" {
		return Decision{Action: Leave, State: state, Reason: reasonTooOld, Message: in.TargetBlocked, Fix: "refit bootimage check --target " + in.WantedVersion}, true
	}
	if in.Same {
		return Decision{Action: Write, State: Current, Version: in.WantedVersion, Reason: reasonWritten, Message: "version " + in.WantedVersion + " is written; the image is the wanted one"}, true
	}
	return Decision{}, false
}

// checkVersionStep refuses an older version and a step of more than one minor version:
// both are mistakes in the annotation.
func checkVersionStep(from, to string) string {
	f, errF := componentversion.ParseOS(from)
	t, errT := componentversion.ParseOS(to)
	if errF != nil || errT != nil || f.Scheme != componentversion.SemVer || t.Scheme != componentversion.SemVer {
		return fmt.Sprintf("cannot compare version %q with the wanted version %q", from, to)
	}
	c, err := f.Compare(t)
	switch {
	case err != nil:
		return err.Error()
	case c > 0:
		return fmt.Sprintf("the wanted version %s is older than %s", to, from)
	case t.Major != f.Major || t.Minor > f.Minor+1:
		return fmt.Sprintf("the wanted version %s is more than one minor version away from %s", to, from)
	}
	return ""
}

func alreadyWanted(in *Input) (Decision, bool) {
	if !in.Same {
		return Decision{}, false
	}
	if in.Rollback != nil {
		return Decision{Action: Leave, State: Skipped, Reason: reasonRolledBack, Message: fmt.Sprintf("new machines start from %s again: %s. This lasts until the stream has a newer image", describeImage(in.Wanted), in.Rollback),
			Fix: "nothing, or end it: refit bootimage rollback SOURCE --end"}, true
	}
	return Decision{Action: Leave, State: Current, Reason: reasonAsExpected, Message: "new machines start from the wanted image " + describeImage(in.Wanted)}, true
}

func describeImage(i Image) string {
	switch {
	case i.OS != "" && i.Text != "":
		return i.Text + " (" + i.OS + ")"
	case i.Text == "":
		return "that is not named"
	}
	return i.Text
}

// newer: refit never replaces an image by an older one, unless a person rolls it back.
func newer(in *Input) (Decision, bool) {
	if c, ok := compareImages(in.Current, in.Wanted); !ok || c <= 0 || in.Rollback != nil {
		return Decision{}, false
	}
	return Decision{Action: Leave, State: Skipped, Reason: reasonNewer, Message: fmt.Sprintf("its image %s is newer than %s, which the stream wants", describeImage(in.Current), describeImage(in.Wanted)),
		Fix: "update the stream, or set the older image yourself"}, true
}

// rollbackTooOld: refit does not roll back to an image whose machines could not join.
func rollbackTooOld(in *Input) (Decision, bool) {
	if in.Rollback == nil || in.RollbackBlocked == "" {
		return Decision{}, false
	}
	return Decision{Action: Leave, State: Outdated, Reason: reasonTooOld, Message: fmt.Sprintf("%s; refit does not return to %s, because its machines could not join: %s", in.Rollback, describeImage(in.Wanted), in.RollbackBlocked),
		Fix: "roll back to another image (refit bootimage list), or waive the rule in the policy (spec.skew.waivers)"}, true
}

func custom(in *Input) (Decision, bool) {
	if in.Recognised || in.Adopt {
		return Decision{}, false
	}
	what := "no stream lists its image " + describeImage(in.Current)
	if in.Current.Text == "" {
		what = "it names no image, so the provider chooses one when it creates a machine"
	}
	return Decision{Action: Leave, State: Skipped, Reason: reasonCustom, Message: what + "; refit does not overwrite it",
		Fix: "list it in a BootImageStream, declare it in the MachineSource, or set adopt: true"}, true
}

// notUploaded: machines cannot start from a file that was not uploaded, so refit neither
// writes nor proposes it.
func notUploaded(in *Input) (Decision, bool) {
	if !in.NotUploaded {
		return Decision{}, false
	}
	return Decision{Action: Leave, State: Outdated, Reason: reasonNotUploaded, Message: fmt.Sprintf("it uses %s; wanted is %s, a file that is not marked as uploaded", describeImage(in.Current), describeImage(in.Wanted)),
		Fix: "run the commands that refit bootimage uploads prints"}, true
}

// tooFresh: refit neither writes nor proposes an image before it has the minimum age. An image
// whose age is not known never has it.
func tooFresh(in *Input) (Decision, bool) {
	m := in.MinimumAge
	until := m.Built.Add(m.Age)
	if m.Age <= 0 || !m.Built.IsZero() && !in.Now.Before(until) {
		return Decision{}, false
	}
	d := Decision{Action: Leave, State: Outdated, Reason: reasonTooFresh}
	days := int(m.Age.Hours() / 24)
	if m.Built.IsZero() {
		d.Message = fmt.Sprintf("it uses %s; rule %s wants images of at least %d days, and the version of %s has no date", describeImage(in.Current), m.Rule, days, describeImage(in.Wanted))
		d.Fix = "waive the rule for this image in the policy (spec.skew.waivers)"
		return d, true
	}
	then := "refit writes it from "
	if in.Mode == Observe || in.Mode == Propose {
		then = "it is old enough from "
	}
	d.Wait = Wait{Built: m.Built, Until: until}
	d.Message = fmt.Sprintf("it uses %s; %s was built on %s, and rule %s wants images of at least %d days: %s%s on", describeImage(in.Current), describeImage(in.Wanted),
		m.Built.UTC().Format(time.DateOnly), m.Rule, days, then, until.UTC().Format(time.DateOnly))
	d.Fix = "wait until then, or waive the rule in the policy (spec.skew.waivers)"
	return d, true
}

func ownedByOthers(in *Input) (Decision, bool) {
	switch {
	case in.Owner != "":
		return Decision{Action: Suggest, State: Skipped, Reason: reasonOwned, Message: fmt.Sprintf("%s writes it; it uses %s, wanted is %s", in.Owner, describeImage(in.Current), describeImage(in.Wanted)),
			Fix: "take over the patch: refit bootimage diff"}, true
	case in.Mode == Propose:
		return Decision{Action: Suggest, State: Outdated, Reason: reasonOutdated, Message: fmt.Sprintf("it uses %s, wanted is %s", describeImage(in.Current), describeImage(in.Wanted)),
			Fix: "take over the patch: refit bootimage diff"}, true
	}
	return Decision{}, false
}

func observed(in *Input) (Decision, bool) {
	if in.Mode != Observe {
		return Decision{}, false
	}
	return Decision{Action: Leave, State: Outdated, Reason: reasonOutdated, Message: fmt.Sprintf("it uses %s, wanted is %s; the mode is Observe", describeImage(in.Current), describeImage(in.Wanted)),
		Fix: "choose another mode in the policy, or write the image yourself: refit bootimage diff"}, true
}

// contested: refit stops after Contest.Writes of the same image within the window, and tries
// again after a quiet time.
func contested(in *Input) (Decision, bool) {
	count, stop := in.Contest.reached(in.Now, in.Past, in.Wanted.Text, in.ForeignAt)
	if !stop {
		return Decision{}, false
	}
	who := otherWriter(in.UndoneBy)
	return Decision{Action: Suggest, State: Contested, Reason: reasonContested, Message: fmt.Sprintf("%s was written %d times and reverted by %s", describeImage(in.Wanted), count, who),
		Fix: "stop that writer, or set mode Propose; refit tries again after a quiet time"}, true
}

// reached counts the writes of one value within the window. stop holds once the limit is
// reached, until neither side has written for the quiet time.
func (c Contest) reached(now time.Time, past []Past, to string, foreignAt time.Time) (count int, stop bool) {
	last := foreignAt
	for _, p := range past {
		if p.To != to || now.Sub(p.At) > c.Window {
			continue
		}
		count++
		if p.At.After(last) {
			last = p.At
		}
	}
	return count, count >= c.Writes && now.Sub(last) < c.Quiet
}

func otherWriter(name string) string {
	if name == "" {
		return "a writer without an entry in managedFields"
	}
	return name
}

func userData(in *Input) (Decision, bool) {
	d := Decision{Action: Leave, State: Outdated, Reason: reasonUserData, Message: in.UserData, Fix: "convert that Secret to Ignition version 3 yourself"}
	if in.UserData == "" && madeTooOld(in) {
		d.Message = fmt.Sprintf("%s makes first-boot configurations of Ignition %s, and OS %s reads only those of version 3", in.MadeBy, in.MadeIgnition, in.Wanted.OS)
		d.Fix = "set that field to a version 3 in a template of your own, for example 3.4, and let the machines use it"
	}
	return d, d.Message != ""
}

// madeTooOld reports whether the wanted image cannot read the configurations that the template
// asks for. refit does not change that: the bootstrap provider's configurations change with it.
func madeTooOld(in *Input) bool {
	os, err := componentversion.ParseOS(in.Wanted.OS)
	return strings.HasPrefix(in.MadeIgnition, "2.") && err == nil && os.OnlyIgnition3()
}

func decideWrite(in *Input) Decision {
	d := Decision{Action: Write, State: Outdated, Reason: reasonWritten, Message: fmt.Sprintf("%s is written instead of %s", describeImage(in.Wanted), describeImage(in.Current))}
	if in.Rollback != nil {
		d.Message += ": " + in.Rollback.String()
	}
	harmless := in.Effect == newMachines || in.Effect == drifts && in.DriftHeld
	switch {
	case in.Mode == Piggyback:
		return decidePiggyback(in, d, harmless)
	case in.Mode == Roll && !in.WindowOpen:
		return Decision{Action: Stage, State: Outdated, Reason: reasonStaged, Message: describeImage(in.Wanted) + " is staged and waits for a window", Fix: "wait for the window, or change windows in the policy"}
	case in.Mode == Roll, harmless:
		return d
	}
	return refuseReplacing(in)
}

func decidePiggyback(in *Input, d Decision, harmless bool) Decision {
	switch {
	case in.WantedVersion != "" && in.WantedVersion != in.Version:
		d.Version = in.WantedVersion
		d.Message += ", together with version " + in.WantedVersion
		return d
	case harmless:
		return d
	case in.Version == "":
		return Decision{Action: Leave, State: Outdated, Reason: reasonWouldReplace, Message: "it has no version to write the image with, and the image alone would replace machines",
			Fix: "choose mode NewMachinesOnly or Roll for it"}
	}
	return Decision{Action: Stage, State: Outdated, Reason: reasonStaged, Message: fmt.Sprintf("%s is staged; refit writes it together with the next version", describeImage(in.Wanted)),
		Fix: "annotate it: refit.dev/wanted-version=VERSION"}
}

func refuseReplacing(in *Input) Decision {
	d := Decision{Action: Leave, State: Outdated, Reason: reasonWouldReplace,
		Message: fmt.Sprintf("it uses %s, wanted is %s; writing it would replace running machines, and mode %s replaces none", describeImage(in.Current), describeImage(in.Wanted), in.Mode),
		Fix:     "set the strategy OnDelete, or choose mode Piggyback or Roll"}
	if in.Effect == drifts {
		d.Fix = "block drift: set a budget {nodes: \"0\", reasons: [Drifted]} in every NodePool that uses it; or choose mode Roll"
	}
	return d
}
