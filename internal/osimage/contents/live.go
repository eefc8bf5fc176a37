package contents

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/osimage"
)

// Rules decide which differences reach a node without a boot.
type Rules struct {
	// Pool has its own rules; refit's come after them.
	Pool []osimage.Rule
	// Known are paths, with the leading slash, of the pool's configuration, which itself
	// declares the disruption of a change.
	Known map[string]bool
}

// MaxFiles is how many files agents write; for more the node boots the image.
const MaxFiles = 32

// Covers reports whether a change needs no boot.
func (r Rules) Covers(c Change) bool {
	_, why := r.configFile(c)
	return why == ""
}

// Refuses returns why a change needs a boot, empty if it does not.
func (r Rules) Refuses(c Change) string {
	_, why := r.configFile(c)
	return why
}

// Live has the files that agents write without a boot.
type Live struct {
	// Files by path.
	Files []model.ConfigFile
	// Summary is half a sentence for people: how many files, by which rules.
	Summary string
}

// Live returns the files of a result that needs no boot, or why it needs one.
func (r Rules) Live(res Result) (live Live, why string) {
	if res.Uncompared != "" {
		return live, res.Uncompared
	}
	var says []string
	known := false
	for _, c := range res.Changes {
		f, why := r.configFile(c)
		if why != "" {
			return Live{}, c.Path + ": " + why
		}
		if f == nil {
			known = true
			continue
		}
		live.Files = append(live.Files, *f)
		says = append(says, c.Path+" ("+r.describeActions(c.Path)+")")
	}
	if res.Stopped {
		return Live{}, "it was not compared to the end"
	}
	if n := len(live.Files); n > MaxFiles {
		return Live{}, fmt.Sprintf("%d files differ, and at most %d are written without a boot", n, MaxFiles)
	}
	live.Summary = summarize(says)
	if known && len(says) == 0 {
		live.Summary = "differs only in what the pool's configuration brings without a boot"
	}
	return live, ""
}

// namedFiles is how many files a summary names.
const namedFiles = 5

func summarize(says []string) string {
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

// decideFor applies the rules to a path; a rule for a unit covers the unit's file.
func (r Rules) decideFor(path string) osimage.Disruption {
	a := osimage.DecideDisruption(r.Pool, []osimage.Change{{Kind: osimage.ChangeFile, Name: path}})
	if unit := model.UnitOf(path); unit != "" && a.Reboots() {
		return osimage.DecideDisruption(r.Pool, []osimage.Change{{Kind: osimage.ChangeUnit, Name: unit}})
	}
	return a
}

func (r Rules) describeActions(path string) string {
	a := r.decideFor(path)
	var do []string
	for _, x := range a.Actions {
		do = append(do, x.String())
	}
	if len(do) == 0 {
		do = []string{string(osimage.ActionNone)}
	}
	return strings.Join(do, ", ") + " by " + a.Matches[0].Rule
}

// configFile returns the file that an agent writes for a change, nil if it writes none, or why
// the change needs a boot.
func (r Rules) configFile(c Change) (f *model.ConfigFile, why string) {
	if r.Known[c.Path] {
		return nil, ""
	}
	for _, refuse := range []func(Change) string{refusePath, refuseOld, refuseNew} {
		if why := refuse(c); why != "" {
			return nil, why
		}
	}
	a := r.decideFor(c.Path)
	if a.Reboots() {
		return nil, a.Matches[0].Rule + " but a reboot"
	}
	f = &model.ConfigFile{Path: c.Path}
	f.Disruption, f.Units = a.ConfigDisruption()
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

// refusePath returns why agents do not write to a path.
func refusePath(c Change) string {
	switch {
	case !strings.HasPrefix(c.Path, "/etc/"):
		return "outside of /etc only a booted image changes files"
	case osimage.IsPerMachine(c.Path):
		return "it is the node's own"
	}
	return model.ProtectedPath(c.Path)
}

// refuseOld returns why agents cannot replace the old entry.
func refuseOld(c Change) string {
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
		return "its old content is in layers that were not read"
	}
	return ""
}

// refuseNew returns why agents cannot write the new entry.
func refuseNew(c Change) string {
	e := c.Is.Entry
	switch {
	case c.Is.Presence == Shared:
		return "its new content is in layers that were not read"
	case c.Is.Presence == Absent:
		return ""
	case e.Kind != File:
		return "it is a " + string(e.Kind)
	case e.Attributes != "":
		return "it has extended attributes"
	case e.Mode > 0o777:
		return fmt.Sprintf("its mode is %04o", e.Mode)
	case e.Mode&0o004 == 0:
		return "not every user may read it, and every node can read what agents write"
	case int64(len(e.Data)) != e.Size:
		return fmt.Sprintf("it has %d bytes, too many for agents to write", e.Size)
	}
	return model.LooksSecret(c.Path, e.Data)
}
