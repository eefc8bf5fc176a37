package contents

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/osimage"
)

// Rules say which differences reach a node without a boot.
type Rules struct {
	// Pool has its own rules; refit's come after them.
	Pool []osimage.Rule
	// Known are paths, with the leading slash, that the pool's configuration brings:
	// it says itself what a change of them costs.
	Known map[string]bool
}

// MostFiles are written without a boot; more is an image's work.
const MostFiles = 32

// Covers reports whether a change needs no boot.
func (r Rules) Covers(c Change) bool {
	_, why := r.file(c)
	return why == ""
}

// Refuses says why a change needs a boot, empty if it does not.
func (r Rules) Refuses(c Change) string {
	_, why := r.file(c)
	return why
}

// Live is what agents write.
type Live struct {
	// Files by path.
	Files []model.ConfigFile
	// Say is a half sentence for people: how many, by which rules.
	Say string
}

// Live are the files of a result that needs no boot. why says that it needs one.
func (r Rules) Live(res Result) (live Live, why string) {
	if res.Uncompared != "" {
		return live, res.Uncompared
	}
	var says []string
	known := false
	for _, c := range res.Changes {
		f, why := r.file(c)
		if why != "" {
			return Live{}, c.Path + ": " + why
		}
		if f == nil {
			known = true
			continue
		}
		live.Files = append(live.Files, *f)
		says = append(says, c.Path+" ("+r.says(c.Path)+")")
	}
	if res.Stopped {
		return Live{}, "it was not compared to the end"
	}
	if n := len(live.Files); n > MostFiles {
		return Live{}, fmt.Sprintf("%d files differ, and at most %d are written without a boot", n, MostFiles)
	}
	live.Say = say(says)
	if known && len(says) == 0 {
		live.Say = "differs only in what the pool's configuration brings without a boot"
	}
	return live, ""
}

// namedFiles are said by name in a sentence.
const namedFiles = 5

func say(says []string) string {
	switch n := len(says); {
	case n == 0:
		return "has the same contents"
	case n == 1:
		return "differs in 1 file: " + says[0]
	case n > namedFiles:
		return fmt.Sprintf("differs in %d files: %s and %d more", n, strings.Join(says[:namedFiles], ", "), n-namedFiles)
	default:
		return fmt.Sprintf("differs in %d files: %s", n, strings.Join(says, ", "))
	}
}

// decide by the rules; a unit's file may be covered by a rule for the unit.
func (r Rules) decide(path string) osimage.Disruption {
	a := osimage.DecideDisruption(r.Pool, []osimage.Change{{Kind: osimage.ChangeFile, Name: path}})
	if unit := model.UnitOf(path); unit != "" && a.Reboots() {
		return osimage.DecideDisruption(r.Pool, []osimage.Change{{Kind: osimage.ChangeUnit, Name: unit}})
	}
	return a
}

func (r Rules) says(path string) string {
	a := r.decide(path)
	var do []string
	for _, x := range a.Actions {
		do = append(do, x.String())
	}
	if len(do) == 0 {
		do = []string{string(osimage.ActionNone)}
	}
	return strings.Join(do, ", ") + " by " + a.Because[0].Rule
}

// file that an agent writes for a change; nil if nothing has to be written. why it
// cannot be without a boot.
func (r Rules) file(c Change) (f *model.ConfigFile, why string) {
	if r.Known[c.Path] {
		return nil, ""
	}
	for _, refuse := range []func(Change) string{place, before, after} {
		if why := refuse(c); why != "" {
			return nil, why
		}
	}
	a := r.decide(c.Path)
	if a.Reboots() {
		return nil, a.Because[0].Rule + " but a reboot"
	}
	f = &model.ConfigFile{Path: c.Path}
	f.Disruption, f.Units = a.As()
	if c.Is.Presence == Absent {
		f.Absent = true
		return f, ""
	}
	e := c.Is.Entry
	f.Mode, f.Owner, f.Group, f.Data = e.Mode, owner(e.UID), owner(e.GID), slices.Clone(e.Data)
	return f, ""
}

func owner(id int) string {
	if id == 0 {
		return "root"
	}
	return strconv.Itoa(id)
}

// place says why nothing is written to a path while the node runs.
func place(c Change) string {
	switch {
	case !strings.HasPrefix(c.Path, "/etc/"):
		return "only an image that is booted brings what lies outside of /etc"
	case osimage.IsPerMachine(c.Path):
		return "it is the node's own"
	}
	return model.KeptPath(c.Path)
}

// before says what there was that cannot be written over.
func before(c Change) string {
	switch c.Was.Presence {
	case Absent:
		return ""
	case There:
		if c.Was.Entry.Kind != File {
			return "it was a " + string(c.Was.Entry.Kind)
		}
		return ""
	case Shared:
	}
	if c.Is.Presence != There {
		return "what it was lies in layers that were not read"
	}
	return ""
}

// after says what there is that an agent does not write.
func after(c Change) string {
	e := c.Is.Entry
	switch {
	case c.Is.Presence == Shared:
		return "what it is lies in layers that were not read"
	case c.Is.Presence == Absent:
		return ""
	case e.Kind != File:
		return "it is a " + string(e.Kind)
	case e.Attributes != "":
		return "it has extended attributes"
	case e.Mode > 0o777:
		return fmt.Sprintf("its mode is %04o", e.Mode)
	case e.Mode&0o004 == 0:
		return "not everybody may read it, and what agents are told every node may read"
	case int64(len(e.Data)) != e.Size:
		return fmt.Sprintf("it has %d bytes, too many to be told to agents", e.Size)
	}
	return model.LooksSecret(c.Path, e.Data)
}
