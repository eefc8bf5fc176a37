package imagecmd

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/skew"
	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/text"
)

// describeAges returns the dates of versions.
func (s *Source) describeAges() {
	from := s.Declared
	switch {
	case s.Referenced != nil && s.Referenced.OS != "":
		s.ImageBuilt = built(s.Referenced.OS)
	case from != nil:
		s.ImageBuilt = built(from.OS)
	}
	for _, b := range s.InstalledImages {
		if at := built(b.OS); at != nil && (s.OldestInstalledImage == nil || at.Before(*s.OldestInstalledImage)) {
			s.OldestInstalledImage = at
		}
	}
}

func built(version string) *time.Time {
	v, err := componentversion.ParseOS(version)
	if err != nil || v.Built.IsZero() {
		return nil
	}
	return &v.Built
}

// age in days, as a column.
func age(at *time.Time, now time.Time) string {
	if at == nil {
		return "-"
	}
	return fmt.Sprintf("%dd", int(now.Sub(*at).Hours()/24))
}

// describeState returns the sentences below a source's line: faults first, then, with all,
// facts about its machines.
func (s *Source) describeState(wide bool, now time.Time) []string {
	out := s.problems(now)
	if !wide {
		return out
	}
	if s.Nodes > 0 || s.Joining > 0 {
		out = append(out, s.describeCounts(now))
	}
	if facts := s.describeFacts(); facts != "" {
		out = append(out, "its machines have at least: "+facts)
	}
	if s.Authority != nil && s.Authority.Trusted {
		out = append(out, "new machines and their server: "+s.Authority.Message)
	}
	return out
}

// problems returns the faults that a user must fix or know.
func (s *Source) problems(now time.Time) []string {
	var out []string
	if s.State != v1alpha1.SourceCurrent && s.Message != "" {
		out = append(out, s.Message)
	}
	if waits := s.describeWait(now); waits != "" {
		out = append(out, waits)
	}
	if !s.NewEnough && s.Skew != "" {
		out = append(out, "new enough? "+s.Skew)
	}
	for _, m := range s.Refused {
		if len(out) == 0 || !strings.Contains(out[0], m.Message) { // otherwise it is a duplicate
			out = append(out, fmt.Sprintf("machine %s could not join: %s", m.Machine, m.Message))
		}
	}
	if s.Authority != nil && !s.Authority.Trusted {
		out = append(out, "new machines do not trust their server: "+s.Authority.Message)
	}
	return out
}

// describeWait returns how old the image is that waits, and for how long it still waits.
func (s *Source) describeWait(now time.Time) string {
	w := s.Wait
	if w == nil || w.Built == nil || w.Until == nil {
		return ""
	}
	left := max(0, int(math.Ceil(w.Until.Sub(now).Hours()/24)))
	return fmt.Sprintf("image %s is %s old; it waits for %s more, until %s", cmp.Or(w.OS, w.Image), text.Count(int(now.Sub(w.Built.Time).Hours()/24), "day"),
		text.Count(left, "day"), w.Until.UTC().Format(time.DateOnly))
}

func (s *Source) describeCounts(now time.Time) string {
	line := fmt.Sprintf("%s installed from it", text.Count(int(s.Nodes), "node"))
	if s.OldestInstalledImage != nil {
		line += fmt.Sprintf(", the oldest from an image of %s (%s)", s.OldestInstalledImage.Format(time.DateOnly), age(s.OldestInstalledImage, now))
	}
	if s.Joining > 0 {
		line += fmt.Sprintf("; %s without a node yet", text.Count(int(s.Joining), "machine"))
	}
	return line
}

// factNames has the names of facts.
var factNames = map[string]string{skew.FactCPU: "processor", skew.FactShim: "boot loader shim", skew.FactGrub: "boot loader GRUB", skew.FactLoader: "boot loader of"}

func (s *Source) describeFacts() string {
	var out []string
	for _, f := range s.Machines {
		name := factNames[f.Name]
		if name == "" {
			name = f.Name
		}
		line := fmt.Sprintf("%s %s (%s", name, f.Least, f.Example)
		if f.Nodes > 1 {
			line += fmt.Sprintf(" and %d more", f.Nodes-1)
		}
		if f.Silent > 0 {
			line += fmt.Sprintf("; %d not reported", f.Silent)
		}
		out = append(out, line+")")
	}
	return strings.Join(out, ", ")
}
