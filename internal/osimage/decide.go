package osimage

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"
)

// Phase of a build. The last three are ends: nothing changes after them.
type Phase string

// Phases.
const (
	Prepared    Phase = "Prepared"
	Building    Phase = "Building"
	Succeeded   Phase = "Succeeded"
	Failed      Phase = "Failed"
	Interrupted Phase = "Interrupted"
)

// Ended reports whether a phase is an end.
func (p Phase) Ended() bool { return p == Succeeded || p == Failed || p == Interrupted }

// Build is one build there is.
type Build struct {
	Name   string
	Inputs Inputs
	Phase  Phase
	// Digest of the image, if it succeeded; Message says why it failed.
	Digest, Message string
	// Manifests under an index: a node may say that it has one of them.
	Manifests []string
	// Made is when it was created.
	Made time.Time
	// Going: it is being deleted.
	Going bool
}

// Answer of a registry about an image.
type Answer string

// Answers. Unasked is none yet.
const (
	Unasked Answer = ""
	Present Answer = "present"
	Absent  Answer = "absent"
	Denied  Answer = "denied"
	Away    Answer = "away"
)

// Situation is all that is decided on, for one pool.
type Situation struct {
	Wanted Inputs
	// Builds of the OSImage.
	Builds []Build
	// Current is the name of the build that the pool has, empty for none.
	Current string
	// Live: the pool's image differs from what is wanted only in what is changed
	// without a reboot; LiveWhy says in what.
	Live    bool
	LiveWhy string
	// Spared says that the image of what is wanted differs from the pool's only in what
	// agents write, and in what; empty if it does not, or nobody has compared them.
	Spared string
	// Registry is what it said of the image of the build that would be used.
	Registry Answer
	// Held is the build that a person keeps the pool on, whatever is wanted.
	Held string
	// Refused says why nothing may be built now, empty if it may: the base is not
	// known, the Containerfile is wrong, the pool's configuration is in conflict.
	Refused string
	// NoBase says why nothing can be built now although nothing is wrong, empty if it can:
	// the base is on no node yet.
	NoBase string
	// Again: a person asks for a build that failed to be tried again.
	Again bool
}

// Verb of a decision.
type Verb string

// Verbs.
const (
	// Use the image of Build.
	Use Verb = "Use"
	// Keep the pool's image: what differs is changed live.
	Keep Verb = "Keep"
	// Make the build.
	Make Verb = "Make"
	// Remake: delete the build and make it again.
	Remake Verb = "Remake"
	// Ask the registry about the image of Build.
	Ask Verb = "Ask"
	// Wait for Build, or for what Why says.
	Wait Verb = "Wait"
	// Stuck until a person does something.
	Stuck Verb = "Stuck"
)

// Decision is what is to be done for a pool.
type Decision struct {
	Verb  Verb
	Build string
	// Why in a sentence.
	Why string
	// Reason word if it waits or is stuck.
	Reason string
	// Interrupt are builds that run and are not wanted any more by this pool.
	Interrupt []string
}

// Reason words; the catalogue of the API has the same.
const (
	reasonBuilding     = "ImageBuilding"
	reasonBuildFailed  = "ImageBuildFailed"
	reasonImageRefused = "OSImageInvalid"
	reasonDenies       = "RegistryUnauthorized"
	reasonAway         = "RegistryUnreachable"
	reasonNoBase       = "OSBaseNotPinned"
)

func (s Situation) find(name string) *Build {
	for i := range s.Builds {
		if s.Builds[i].Name == name {
			return &s.Builds[i]
		}
	}
	return nil
}

// Decide says what to do.
func Decide(s Situation) Decision {
	if s.Held != "" {
		return s.hold()
	}
	if s.Refused != "" {
		return Decision{Verb: Stuck, Reason: reasonImageRefused, Why: s.Refused}
	}
	name := s.Wanted.Name()
	d := s.decide(name)
	if s.NoBase != "" && (d.Verb == Make || d.Verb == Remake) {
		d = Decision{Verb: Wait, Reason: reasonNoBase, Why: s.NoBase}
	}
	for _, b := range s.Builds {
		if b.Name != name && !b.Phase.Ended() && !b.Going {
			d.Interrupt = append(d.Interrupt, b.Name)
		}
	}
	sort.Strings(d.Interrupt)
	return d
}

// hold has the pool on the build that a person named. It is not made again: its inputs
// are not those of today.
func (s Situation) hold() Decision {
	b := s.find(s.Held)
	switch {
	case b == nil || b.Going:
		return Decision{Verb: Stuck, Reason: reasonImageRefused, Why: "the pool is held on build " + s.Held + ", and this OSImage has none of that name"}
	case b.Phase != Succeeded:
		return Decision{Verb: Stuck, Reason: reasonImageRefused, Why: "the pool is held on build " + s.Held + ", which made no image: it is " + string(b.Phase)}
	case s.Registry == Absent:
		return Decision{Verb: Stuck, Reason: reasonImageRefused, Why: "the pool is held on build " + s.Held + ", and " + b.where() + " has its image no more"}
	}
	return s.held(b, Decision{Verb: Use, Build: b.Name, Why: "the pool is held on build " + b.Name + ", whatever is wanted since"})
}

func (s Situation) decide(name string) Decision {
	b := s.find(name)
	if b == nil || b.Phase == Interrupted {
		if current := s.kept(name); current != nil {
			return s.held(current, Decision{Verb: Keep, Build: s.Current, Why: "the image stays: " + s.LiveWhy})
		}
	}
	if b == nil {
		return Decision{Verb: Make, Build: name, Why: s.because()}
	}
	if b.Going {
		return Decision{Verb: Wait, Build: name, Reason: reasonBuilding, Why: "build " + name + " is being deleted, and is made again then"}
	}
	switch b.Phase {
	case Interrupted:
		return Decision{Verb: Remake, Build: name, Why: "build " + name + " was interrupted by newer inputs, which are gone"}
	case Failed:
		if s.Again {
			return Decision{Verb: Remake, Build: name, Why: "build " + name + " failed, and a person asked for it again"}
		}
		return Decision{Verb: Stuck, Build: name, Reason: reasonBuildFailed, Why: "build " + name + " failed: " + b.Message}
	case Succeeded:
		return s.made(b)
	case Prepared, Building:
	}
	return Decision{Verb: Wait, Build: name, Reason: reasonBuilding, Why: fmt.Sprintf("build %s is %s", name, strings.ToLower(string(b.Phase)))}
}

// kept is the pool's build if its image may stay, although another is wanted.
func (s Situation) kept(wanted string) *Build {
	current := s.find(s.Current)
	if !s.Live || current == nil || current.Phase != Succeeded || s.Current == wanted || s.Registry == Absent {
		return nil
	}
	return current
}

// made: the image is used, unless nodes need not boot it.
func (s Situation) made(b *Build) Decision {
	use := s.held(b, Decision{Verb: Use, Build: b.Name, Why: "build " + b.Name + " made it"})
	if use.Verb == Use && s.Spared != "" && s.spares(b.Name) {
		return Decision{Verb: Keep, Build: s.Current, Why: s.Spared}
	}
	return use
}

// spares: there is another image that nodes can stay on.
func (s Situation) spares(wanted string) bool {
	current := s.find(s.Current)
	return current != nil && current.Phase == Succeeded && !current.Going && s.Current != wanted
}

// Comparable is the pool's build if the image of a decision may turn out to need no boot:
// then the two are compared, and what comes of it is said in Spared.
func (s Situation) Comparable(d Decision) *Build {
	if d.Verb != Use || s.Held != "" || !s.spares(d.Build) {
		return nil
	}
	return s.find(s.Current)
}

// held turns a use of an image into what the registry allows.
func (s Situation) held(b *Build, use Decision) Decision {
	image := b.Inputs.Repository + "@" + b.Digest
	switch s.Registry {
	case Present:
		return use
	case Absent:
		return Decision{Verb: Remake, Build: b.Name, Why: b.where() + " has no " + image + " any more"}
	case Denied:
		return Decision{Verb: Wait, Build: b.Name, Reason: reasonDenies, Why: "the registry does not let refit look for " + image + ", so it is not known whether it is there"}
	case Away:
		return Decision{Verb: Wait, Build: b.Name, Reason: reasonAway, Why: "the registry of " + image + " does not answer, so it is not known whether it is there"}
	case Unasked:
	}
	return Decision{Verb: Ask, Build: b.Name, Why: "is " + image + " still there?"}
}

// where an image is kept.
func (b *Build) where() string {
	if b.Inputs.Output != "" {
		return "the cluster" // what it has beside its base
	}
	return "the registry"
}

// because says which input is new.
func (s Situation) because() string {
	from := s.find(s.Current)
	if from == nil {
		return "there is no image of these inputs yet"
	}
	diff := s.Wanted.Differs(from.Inputs)
	if len(diff) == 0 {
		return "there is no image of these inputs yet"
	}
	return "changed since " + from.Name + ": " + strings.Join(diff, ", ")
}

// needed: it runs, is named, or a node has to do with its image.
func (b Build) needed(used, named map[string]bool) bool {
	if slices.ContainsFunc(b.Manifests, func(d string) bool { return used[d] }) {
		return true
	}
	return !b.Phase.Ended() || b.Going || named[b.Name] || b.Digest != "" && used[b.Digest]
}

// Garbage are builds that may be deleted with their images: they ended, no node
// has, wants or would go back to their image, no pool names them, and they are not
// among the newest keep successful ones of their OSImage. Oldest first.
func Garbage(builds []Build, used map[string]bool, named map[string]bool, keep int) []string {
	list := slices.Clone(builds)
	slices.SortStableFunc(list, func(a, b Build) int {
		return cmp.Or(b.Made.Compare(a.Made), strings.Compare(a.Name, b.Name))
	})
	kept := map[string]int{}
	failed := map[string]bool{}
	var out []string
	for _, b := range list {
		owner := b.Inputs.OSImage
		switch {
		case b.needed(used, named):
		case b.Phase == Succeeded && kept[owner] < keep:
			kept[owner]++
		case b.Phase == Failed && !failed[owner]: // the newest stays to be looked at
			failed[owner] = true
		default:
			out = append(out, b.Name)
		}
	}
	slices.Reverse(out)
	return out
}
