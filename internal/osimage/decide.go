package osimage

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"
)

// Phase of a build. The last three are final.
type Phase string

// Phases.
const (
	Prepared    Phase = "Prepared"
	Building    Phase = "Building"
	Succeeded   Phase = "Succeeded"
	Failed      Phase = "Failed"
	Interrupted Phase = "Interrupted"
)

// Ended reports whether a phase is final.
func (p Phase) Ended() bool { return p == Succeeded || p == Failed || p == Interrupted }

// Build is an existing build.
type Build struct {
	Name   string
	Inputs Inputs
	Phase  Phase
	// Digest of the image, if the build succeeded; Message is why it failed.
	Digest, Message string
	// Manifests of an image index: a node may report one of these digests.
	Manifests []string
	CreatedAt time.Time
	// Deleting: it has a deletion timestamp.
	Deleting bool
}

// Answer of a registry about an image.
type Answer string

// Answers. Unasked: the registry was not asked yet.
const (
	Unasked     Answer = ""
	Present     Answer = "present"
	Absent      Answer = "absent"
	Denied      Answer = "denied"
	Unreachable Answer = "away"
)

// Situation has the inputs of a decision for one pool.
type Situation struct {
	Wanted Inputs
	// Builds of the OSImage.
	Builds []Build
	// Current is the name of the pool's build, empty for none.
	Current string
	// Live: the wanted inputs differ from the pool's image only in parts that agents change
	// without a reboot; LiveWhy names them.
	Live    bool
	LiveWhy string
	// BootNotNeeded is set if the wanted image differs from the pool's only in files that
	// agents write, and names them. It is empty if the images were not compared.
	BootNotNeeded string
	// Registry is its answer about the image that would be used.
	Registry Answer
	// HeldBuild is the build on which the administrator holds the pool, empty for none.
	HeldBuild string
	// Refused is why refit must not build now, empty if it may: the base is not known, the
	// Containerfile is wrong, the pool's configuration is in conflict.
	Refused string
	// NoBase is why refit cannot build yet although nothing is wrong: no node has the base.
	NoBase string
	// RetryRequested: the administrator asked to retry a failed build.
	RetryRequested bool
}

// Verb of a decision.
type Verb string

// Verbs.
const (
	// Use the image of Build.
	Use Verb = "Use"
	// Keep the pool's image: agents change the differing parts live.
	Keep Verb = "Keep"
	// Make the build.
	Make Verb = "Make"
	// Remake: delete the build and create it again.
	Remake Verb = "Remake"
	// Ask the registry about the image of Build.
	Ask Verb = "Ask"
	// Wait for Build, or for the condition in Why.
	Wait Verb = "Wait"
	// Stuck until the administrator acts.
	Stuck Verb = "Stuck"
)

// Decision is the next step for a pool.
type Decision struct {
	Verb  Verb
	Build string
	// Why is a sentence.
	Why string
	// Reason word if it waits or is stuck.
	Reason string
	// Interrupt are running builds that this pool does not want any more.
	Interrupt []string
}

// Reason words; the catalogue of the API has the same.
const (
	reasonBuilding     = "ImageBuilding"
	reasonBuildFailed  = "ImageBuildFailed"
	reasonImageRefused = "OSImageInvalid"
	reasonUnauthorized = "RegistryUnauthorized"
	reasonUnreachable  = "RegistryUnreachable"
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

// Decide returns the next step for a pool.
func Decide(s Situation) Decision {
	if s.HeldBuild != "" {
		return s.decideHeld()
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
		if b.Name != name && !b.Phase.Ended() && !b.Deleting {
			d.Interrupt = append(d.Interrupt, b.Name)
		}
	}
	sort.Strings(d.Interrupt)
	return d
}

// decideHeld uses the build on which the administrator holds the pool. refit cannot make it
// again, because its inputs are old.
func (s Situation) decideHeld() Decision {
	b := s.find(s.HeldBuild)
	switch {
	case b == nil || b.Deleting:
		return Decision{Verb: Stuck, Reason: reasonImageRefused, Why: "the pool is held on build " + s.HeldBuild + ", and this OSImage has none of that name"}
	case b.Phase != Succeeded:
		return Decision{Verb: Stuck, Reason: reasonImageRefused, Why: "the pool is held on build " + s.HeldBuild + ", which made no image: it is " + string(b.Phase)}
	case s.Registry == Absent:
		return Decision{Verb: Stuck, Reason: reasonImageRefused, Why: "the pool is held on build " + s.HeldBuild + ", and " + b.location() + " has its image no more"}
	}
	return s.checkRegistry(b, Decision{Verb: Use, Build: b.Name, Why: "the pool is held on build " + b.Name})
}

func (s Situation) decide(name string) Decision {
	b := s.find(name)
	if b == nil || b.Phase == Interrupted {
		if current := s.keptBuild(name); current != nil {
			return s.checkRegistry(current, Decision{Verb: Keep, Build: s.Current, Why: "the image stays: " + s.LiveWhy})
		}
	}
	if b == nil {
		return Decision{Verb: Make, Build: name, Why: s.describeNewInputs()}
	}
	if b.Deleting {
		return Decision{Verb: Wait, Build: name, Reason: reasonBuilding, Why: "build " + name + " is being deleted, and is made again then"}
	}
	switch b.Phase {
	case Interrupted:
		return Decision{Verb: Remake, Build: name, Why: "build " + name + " was interrupted by newer inputs, which are gone"}
	case Failed:
		if s.RetryRequested {
			return Decision{Verb: Remake, Build: name, Why: "build " + name + " failed, and a person asked for it again"}
		}
		return Decision{Verb: Stuck, Build: name, Reason: reasonBuildFailed, Why: "build " + name + " failed: " + b.Message}
	case Succeeded:
		return s.decideBuilt(b)
	case Prepared, Building:
	}
	return Decision{Verb: Wait, Build: name, Reason: reasonBuilding, Why: fmt.Sprintf("build %s is %s", name, strings.ToLower(string(b.Phase)))}
}

// keptBuild returns the pool's build if its image may stay, although another is wanted.
func (s Situation) keptBuild(wanted string) *Build {
	current := s.find(s.Current)
	if !s.Live || current == nil || current.Phase != Succeeded || s.Current == wanted || s.Registry == Absent {
		return nil
	}
	return current
}

// decideBuilt uses the image, unless nodes need not boot it.
func (s Situation) decideBuilt(b *Build) Decision {
	use := s.checkRegistry(b, Decision{Verb: Use, Build: b.Name, Why: "build " + b.Name + " made it"})
	if use.Verb == Use && s.BootNotNeeded != "" && s.canStay(b.Name) {
		return Decision{Verb: Keep, Build: s.Current, Why: s.BootNotNeeded}
	}
	return use
}

// canStay reports whether nodes can stay on the pool's current image.
func (s Situation) canStay(wanted string) bool {
	current := s.find(s.Current)
	return current != nil && current.Phase == Succeeded && !current.Deleting && s.Current != wanted
}

// Comparable returns the pool's build if the image of a decision may need no boot. The caller
// then compares the two images and sets BootNotNeeded.
func (s Situation) Comparable(d Decision) *Build {
	if d.Verb != Use || s.HeldBuild != "" || !s.canStay(d.Build) {
		return nil
	}
	return s.find(s.Current)
}

// checkRegistry changes the use of an image according to the registry's answer.
func (s Situation) checkRegistry(b *Build, use Decision) Decision {
	image := b.Inputs.Repository + "@" + b.Digest
	switch s.Registry {
	case Present:
		return use
	case Absent:
		return Decision{Verb: Remake, Build: b.Name, Why: b.location() + " has no " + image + " any more"}
	case Denied:
		return Decision{Verb: Wait, Build: b.Name, Reason: reasonUnauthorized, Why: "the registry denies refit access to " + image + ", so it is not known whether the image exists"}
	case Unreachable:
		return Decision{Verb: Wait, Build: b.Name, Reason: reasonUnreachable, Why: "the registry of " + image + " does not answer, so it is not known whether the image exists"}
	case Unasked:
	}
	return Decision{Verb: Ask, Build: b.Name, Why: "is " + image + " still there?"}
}

// location names where the image of a build is stored.
func (b *Build) location() string {
	if b.Inputs.Output != "" {
		return "the cluster" // which stores the layers above the base
	}
	return "the registry"
}

// describeNewInputs names the inputs that changed since the pool's build.
func (s Situation) describeNewInputs() string {
	from := s.find(s.Current)
	if from == nil {
		return "there is no image of these inputs yet"
	}
	diff := s.Wanted.ChangedSince(from.Inputs)
	if len(diff) == 0 {
		return "there is no image of these inputs yet"
	}
	return "changed since " + from.Name + ": " + strings.Join(diff, ", ")
}

// needed reports whether a build runs, is named by a pool, or a node uses its image.
func (b Build) needed(used, named map[string]bool) bool {
	if slices.ContainsFunc(b.Manifests, func(d string) bool { return used[d] }) {
		return true
	}
	return !b.Phase.Ended() || b.Deleting || named[b.Name] || b.Digest != "" && used[b.Digest]
}

// Garbage returns the builds that refit may delete with their images, oldest first. They are
// finished, no pool names them, and no node has, wants or would roll back to their image. The
// newest successful builds of each OSImage, keep in number, are not garbage.
func Garbage(builds []Build, used map[string]bool, named map[string]bool, keep int) []string {
	list := slices.Clone(builds)
	slices.SortStableFunc(list, func(a, b Build) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.Name, b.Name))
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
		case b.Phase == Failed && !failed[owner]: // the newest failure stays for inspection
			failed[owner] = true
		default:
			out = append(out, b.Name)
		}
	}
	slices.Reverse(out)
	return out
}
