package bootimage

import (
	"fmt"
	"time"

	"github.com/refit-dev/refit/internal/osversion"
)

// Modes, as in the API.
const (
	Observe         = "Observe"
	NewMachinesOnly = "NewMachinesOnly"
	Piggyback       = "Piggyback"
	Roll            = "Roll"
	Propose         = "Propose"
)

// Effects of a change, as the table of machine kinds says them.
const (
	newMachines = "NewMachines"
	drifts      = "Drifts"
)

// Actions.
const (
	// Leave the object as it is.
	Leave = "Leave"
	// Write the wanted image, and Decision.Version with it if it is set.
	Write = "Write"
	// Stage a template so that a later write is one write.
	Stage = "Stage"
	// Say what to write.
	Say = "Say"
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
	reasonAsExpected = "AsExpected"
	reasonContested  = "BootImageContested"
	reasonCustom     = "BootImageCustom"
	reasonExcluded   = "BootImageExcluded"
	reasonNewer      = "BootImageNewer"
	reasonNotThere   = "BootImageNotUploaded"
	reasonOutdated   = "BootImageOutdated"
	reasonOwned      = "BootImageOwned"
	reasonRolls      = "WouldReplaceMachines"
	reasonStaged     = "BootImageStaged"
	reasonTooFresh   = "BootImageTooFresh"
	reasonTooOld     = "BootImageTooOld"
	reasonUnknown    = "BootImageUnknown"
	reasonWritten    = "BootImageWritten"
	reasonUserData   = "UserDataUnusable"
	reasonSkew       = "VersionSkew"
)

// Image as far as it is known.
type Image struct {
	// Text is how the platform names it.
	Text string
	// OS version in it and Release it belongs to; empty if not known.
	OS, Release string
}

// Past is one earlier write.
type Past struct {
	At time.Time
	To string
}

// Contest says when to stop writing what somebody undoes.
type Contest struct {
	Writes        int
	Window, Quiet time.Duration
}

// Input is everything that is known of one manager.
type Input struct {
	Now  time.Time
	Mode string
	// Deleting: the object goes away.
	Deleting bool
	// Excluded says why it is none of ours on purpose.
	Excluded string
	// Owner is who else writes the object or the field, empty if nobody.
	Owner string
	// Effect of a change of the image, and whether drift is held back.
	Effect    string
	DriftHeld bool
	// Current image; Recognised if a stream knows it or refit wrote it. Same is
	// true if it is the wanted one.
	Current    Image
	Recognised bool
	Same       bool
	Adopt      bool
	// Wanted image; WantedErr says why there is none.
	Wanted    Image
	WantedErr string
	// Version that the object makes machines for, empty if it has none, and
	// WantedVersion that somebody asked for.
	Version, WantedVersion string
	// TargetBlocked says why a move to WantedVersion is refused.
	TargetBlocked string
	// NotUploaded: the wanted image is a file that somebody must bring to the
	// platform first.
	NotUploaded bool
	// TooFresh says which rule about the age of images the wanted one does not meet
	// yet, empty for none: once written it would only block the next update.
	TooFresh string
	// UserData says why the first-boot configuration cannot be used with the
	// wanted image.
	UserData string
	// Window is false while mode Roll must wait.
	WindowOpen bool
	// Past writes to this object, the writer that undid the last one, and when it
	// was seen to write.
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
}

// Decide says what is to be done.
func Decide(in Input) Decision {
	for _, ask := range []func(*Input) (Decision, bool){excluded, unwanted, moving, same, newer, custom, notUploaded, fresh, owned, observed, contested, userData} {
		if d, ok := ask(&in); ok {
			return d
		}
	}
	return write(&in)
}

func excluded(in *Input) (Decision, bool) {
	switch {
	case in.Deleting:
		return Decision{Action: Leave, State: Excluded, Reason: reasonExcluded, Message: "it is being deleted"}, true
	case in.Excluded != "":
		return Decision{Action: Leave, State: Excluded, Reason: reasonExcluded, Message: in.Excluded,
			Fix: "declare its image in the MachineSource if updates are to judge it"}, true
	}
	return Decision{}, false
}

func unwanted(in *Input) (Decision, bool) {
	if in.WantedErr == "" {
		return Decision{}, false
	}
	return Decision{Action: Leave, State: Unknown, Reason: reasonUnknown, Message: in.WantedErr, Fix: "say what is missing in the policy, the stream or the object"}, true
}

// moving: in mode Piggyback a version that somebody asked for is written with the
// image, also if the image is the wanted one already.
func moving(in *Input) (Decision, bool) {
	if in.Mode != Piggyback || in.WantedVersion == "" || in.WantedVersion == in.Version || in.Owner != "" {
		return Decision{}, false
	}
	state := Outdated
	if in.Same {
		state = Current
	}
	if why := step(in.Version, in.WantedVersion); why != "" {
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

// step refuses what nobody can have meant: an older version, or more than one
// minor at once.
func step(from, to string) string {
	f, errF := osversion.Parse(from)
	t, errT := osversion.Parse(to)
	if errF != nil || errT != nil || f.Scheme != osversion.SemVer || t.Scheme != osversion.SemVer {
		return fmt.Sprintf("a move from version %q to %q cannot be judged", from, to)
	}
	c, err := f.Compare(t)
	switch {
	case err != nil:
		return err.Error()
	case c > 0:
		return fmt.Sprintf("version %s that is asked for is older than %s", to, from)
	case t.Major != f.Major || t.Minor > f.Minor+1:
		return fmt.Sprintf("version %s that is asked for is more than one minor away from %s", to, from)
	}
	return ""
}

func same(in *Input) (Decision, bool) {
	if !in.Same {
		return Decision{}, false
	}
	return Decision{Action: Leave, State: Current, Reason: reasonAsExpected, Message: "new machines start from the wanted image " + name(in.Wanted)}, true
}

func name(i Image) string {
	switch {
	case i.OS != "" && i.Text != "":
		return i.Text + " (" + i.OS + ")"
	case i.Text == "":
		return "that is not named"
	}
	return i.Text
}

// newer: an image that is newer than the stream's is never taken back.
func newer(in *Input) (Decision, bool) {
	for _, pair := range [][2]string{{in.Current.OS, in.Wanted.OS}, {in.Current.Release, in.Wanted.Release}} {
		have, errH := osversion.Parse(pair[0])
		want, errW := osversion.Parse(pair[1])
		if errH != nil || errW != nil {
			continue
		}
		c, err := have.Compare(want)
		if err != nil {
			continue
		}
		if c > 0 {
			return Decision{Action: Leave, State: Skipped, Reason: reasonNewer, Message: fmt.Sprintf("its image %s is newer than %s, which the stream wants", name(in.Current), name(in.Wanted)),
				Fix: "bring the stream up to date, or set the image back yourself"}, true
		}
		return Decision{}, false // the OS decides; the release only where it is all there is
	}
	return Decision{}, false
}

func custom(in *Input) (Decision, bool) {
	if in.Recognised || in.Adopt {
		return Decision{}, false
	}
	what := "its image " + name(in.Current) + " is of no stream"
	if in.Current.Text == "" {
		what = "it names no image, so its provider chooses one when a machine is made"
	}
	return Decision{Action: Leave, State: Skipped, Reason: reasonCustom, Message: what + "; it is never overwritten",
		Fix: "list it in a BootImageStream, declare it in the MachineSource, or set adopt: true"}, true
}

// notUploaded: machines cannot start from a file, so nothing names it before it is
// there; nobody else is asked to either.
func notUploaded(in *Input) (Decision, bool) {
	if !in.NotUploaded {
		return Decision{}, false
	}
	return Decision{Action: Leave, State: Outdated, Reason: reasonNotThere, Message: fmt.Sprintf("it uses %s; wanted is %s, a file that nobody has said to be uploaded", name(in.Current), name(in.Wanted)),
		Fix: "do what refit bootimage uploads prints"}, true
}

// fresh: an image that must have been out for some time is neither written nor
// proposed before.
func fresh(in *Input) (Decision, bool) {
	if in.TooFresh == "" {
		return Decision{}, false
	}
	return Decision{Action: Leave, State: Outdated, Reason: reasonTooFresh, Message: fmt.Sprintf("it uses %s; %s is wanted and not written yet: %s", name(in.Current), name(in.Wanted), in.TooFresh),
		Fix: "wait until the image is old enough, or waive the rule in the policy (spec.skew.waivers)"}, true
}

func owned(in *Input) (Decision, bool) {
	switch {
	case in.Owner != "":
		return Decision{Action: Say, State: Skipped, Reason: reasonOwned, Message: fmt.Sprintf("%s writes it; it uses %s, wanted is %s", in.Owner, name(in.Current), name(in.Wanted)),
			Fix: "take over the patch: refit bootimage diff"}, true
	case in.Mode == Propose:
		return Decision{Action: Say, State: Outdated, Reason: reasonOutdated, Message: fmt.Sprintf("it uses %s, wanted is %s", name(in.Current), name(in.Wanted)),
			Fix: "take over the patch: refit bootimage diff"}, true
	}
	return Decision{}, false
}

func observed(in *Input) (Decision, bool) {
	if in.Mode != Observe {
		return Decision{}, false
	}
	return Decision{Action: Leave, State: Outdated, Reason: reasonOutdated, Message: fmt.Sprintf("it uses %s, wanted is %s; the mode is Observe", name(in.Current), name(in.Wanted)),
		Fix: "choose another mode in the policy, or write the image yourself: refit bootimage diff"}, true
}

// contested: it is enough when the same image was written so often within the
// window. After a time without a write of either side it is tried again.
func contested(in *Input) (Decision, bool) {
	count, stop := in.Contest.stops(in.Now, in.Past, in.Wanted.Text, in.ForeignAt)
	if !stop {
		return Decision{}, false
	}
	who := undoer(in.UndoneBy)
	return Decision{Action: Say, State: Contested, Reason: reasonContested, Message: fmt.Sprintf("%s was written %d times and undone by %s", name(in.Wanted), count, who),
		Fix: "stop that writer, or set mode Propose; after a quiet time it is tried again"}, true
}

// stops says how often the same was written within the window, and whether that is
// enough: until nobody has written for the quiet time.
func (c Contest) stops(now time.Time, past []Past, to string, foreignAt time.Time) (count int, stop bool) {
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

func undoer(name string) string {
	if name == "" {
		return "somebody who is not named in managedFields"
	}
	return name
}

func userData(in *Input) (Decision, bool) {
	if in.UserData == "" {
		return Decision{}, false
	}
	return Decision{Action: Leave, State: Outdated, Reason: reasonUserData, Message: in.UserData, Fix: "convert that Secret to Ignition version 3 yourself"}, true
}

func write(in *Input) Decision {
	d := Decision{Action: Write, State: Outdated, Reason: reasonWritten, Message: fmt.Sprintf("%s is written instead of %s", name(in.Wanted), name(in.Current))}
	harmless := in.Effect == newMachines || in.Effect == drifts && in.DriftHeld
	switch {
	case in.Mode == Piggyback:
		return piggyback(in, d, harmless)
	case in.Mode == Roll && !in.WindowOpen:
		return Decision{Action: Stage, State: Outdated, Reason: reasonStaged, Message: name(in.Wanted) + " is ready and waits for a window", Fix: "wait for the window, or change windows in the policy"}
	case in.Mode == Roll, harmless:
		return d
	}
	return rolls(in)
}

func piggyback(in *Input, d Decision, harmless bool) Decision {
	switch {
	case in.WantedVersion != "" && in.WantedVersion != in.Version:
		d.Version = in.WantedVersion
		d.Message += ", together with version " + in.WantedVersion
		return d
	case harmless:
		return d
	case in.Version == "":
		return Decision{Action: Leave, State: Outdated, Reason: reasonRolls, Message: "it has no version that the image could be written with, and writing the image alone would replace machines",
			Fix: "choose mode NewMachinesOnly or Roll for it"}
	}
	return Decision{Action: Stage, State: Outdated, Reason: reasonStaged, Message: fmt.Sprintf("%s is ready and is written together with the next version", name(in.Wanted)),
		Fix: "annotate it: refit.dev/wanted-version=VERSION"}
}

func rolls(in *Input) Decision {
	d := Decision{Action: Leave, State: Outdated, Reason: reasonRolls,
		Message: fmt.Sprintf("it uses %s, wanted is %s; writing it would replace machines that run, and mode %s replaces none", name(in.Current), name(in.Wanted), in.Mode),
		Fix:     "set the strategy OnDelete, or choose mode Piggyback or Roll"}
	if in.Effect == drifts {
		d.Fix = "hold drift back: a budget {nodes: \"0\", reasons: [Drifted]} in every NodePool that uses it; or choose mode Roll"
	}
	return d
}
