package osimage

import (
	"fmt"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// Location something goes.
type Location string

// Places.
const (
	InUsr     Location = "image /usr"
	InEtc     Location = "image /etc"
	ByAgent   Location = "agent"
	KargsD    Location = "image kargs.d"
	ByBuilder Location = "builder" // packages: a Containerfile build installs them
)

// PlacedItem is one thing of a configuration and where it went.
type PlacedItem struct {
	// What: a path, unit NAME, kernel arguments, package NAME.
	What  string   `json:"what"`
	Where Location `json:"where"`
	// At is its path in the image, empty if it is not there.
	At string `json:"at,omitempty"`
	// Rule says why, in words.
	Rule string `json:"rule"`
}

// LayerEntry is one entry of a layer; there are none for directories, since they would
// change what the base says of them.
type LayerEntry struct {
	// Path without the leading slash.
	Path string
	Data []byte
	Mode uint32
	UID  int
	GID  int
	// Link is the target of a symbolic link.
	Link string
	// Removed: the layer removes the path of the base.
	Removed bool
}

// Placement is where each part of a configuration goes.
type Placement struct {
	Items []PlacedItem
	// Entries by path, each once.
	Entries []LayerEntry
	// Agent is the desired configuration of a node that booted the image: the agent verifies
	// the image's files and removes stale copies.
	Agent model.NodeConfig
	// Stale are paths in /etc that would hide what the image has in /usr.
	Stale []string
	// Packages that the image is to have; the append builder cannot bring them.
	Packages []string
}

// kargsFile is always in an image: if the directory goes, no argument is removed.
const kargsFile = "usr/lib/bootc/kargs.d/10-refit.toml"

const (
	etcUnits = "/etc/systemd/system/"
	usrUnits = "/usr/lib/systemd/system/"
)

// reasonInvalid as in the catalogue.
const reasonInvalid = "ConfigInvalid"

type placer struct {
	out      Placement
	verdicts []model.Blocker
}

// PlaceConfig places a configuration.
func PlaceConfig(c model.NodeConfig) (Placement, []model.Blocker) {
	p := &placer{}
	agent := c
	agent.Files = nil
	p.out.Agent = agent
	for _, f := range c.Files {
		p.file(f)
	}
	for _, u := range c.Units {
		p.unit(u, c.Files)
	}
	for _, name := range c.Packages {
		p.out.Items = append(p.out.Items, PlacedItem{What: "package " + name, Where: ByBuilder, Rule: "packages are installed when the image is built, never on a node"})
	}
	p.out.Packages = slices.Clone(c.Packages)
	p.arguments(c.OS)
	if len(p.verdicts) > 0 {
		return Placement{}, p.verdicts
	}
	sort.Slice(p.out.Entries, func(i, j int) bool { return p.out.Entries[i].Path < p.out.Entries[j].Path })
	sort.Slice(p.out.Agent.Files, func(i, j int) bool { return p.out.Agent.Files[i].Path < p.out.Agent.Files[j].Path })
	sort.SliceStable(p.out.Items, func(i, j int) bool { return p.out.Items[i].What < p.out.Items[j].What })
	return p.out, nil
}

func (p *placer) refuse(format string, args ...any) {
	p.verdicts = append(p.verdicts, model.Blocker{Reason: reasonInvalid, Message: fmt.Sprintf(format, args...), Fix: "change the NodeConfig that names it"})
}

func (p *placer) item(what string, where Location, at, rule string) {
	p.out.Items = append(p.out.Items, PlacedItem{What: what, Where: where, At: at, Rule: rule})
}

// byAgent leaves a file to the agent.
func (p *placer) byAgent(f model.ConfigFile, rule string) {
	p.item(f.Path, ByAgent, "", rule)
	p.out.Agent.Files = append(p.out.Agent.Files, f)
}

func (p *placer) file(f model.ConfigFile) {
	if isBelow(f.Path, "/usr/etc") {
		p.refuse("file %s: /usr/etc is libostree's own, files of /etc are put to /etc", f.Path)
		return
	}
	usr := isBelow(f.Path, "/usr") && !isBelow(f.Path, "/usr/local")
	if rule := agentOnly(f); rule != "" {
		if usr {
			p.refuse("file %s cannot be there: %s, and below /usr only the image writes", f.Path, rule)
			return
		}
		p.byAgent(f, rule)
		return
	}
	switch {
	case f.Own && strings.HasPrefix(f.Path, etcUnits):
		p.twin(f, usrUnits+strings.TrimPrefix(f.Path, etcUnits))
	case usr:
		p.entry(f, f.Path)
		p.item(f.Path, InUsr, f.Path, "below /usr only the image writes")
		f.InImage = true
		p.out.Agent.Files = append(p.out.Agent.Files, f)
	default:
		p.entry(f, f.Path)
		p.item(f.Path, InEtc, f.Path, "a path that a person wrote is kept; the agent sees to it after the boot, since a local change wins over the image")
		p.out.Agent.Files = append(p.out.Agent.Files, f)
	}
}

// twin moves a file whose path refit chose to /usr, and has the copy in /etc
// removed: it would hide the image's.
func (p *placer) twin(f model.ConfigFile, at string) {
	stale := f.Path
	p.item(stale, InUsr, at, "refit chose the path, so it goes to its twin in /usr; a copy in /etc would hide it and is removed, if refit wrote it")
	p.out.Stale = append(p.out.Stale, stale)
	f.Path = at
	p.entry(f, at)
	if f.Absent { // the image has none, and nothing is hidden by what is not there
		p.out.Agent.Files = append(p.out.Agent.Files, model.ConfigFile{Path: stale, Absent: true, Disruption: f.Disruption, Units: f.Units})
		return
	}
	f.InImage = true
	gone := model.ConfigFile{Path: stale, Absent: true, Stale: true, Disruption: f.Disruption, Units: f.Units}
	p.out.Agent.Files = append(p.out.Agent.Files, f, gone)
}

func (p *placer) entry(f model.ConfigFile, at string) {
	e := LayerEntry{Path: strings.TrimPrefix(at, "/"), Removed: f.Absent}
	if !f.Absent {
		e.Data, e.Mode = f.Data, f.Mode
		e.UID, _ = number(f.Owner)
		e.GID, _ = number(f.Group)
	}
	p.out.Entries = append(p.out.Entries, e)
}

// unit puts the links that enable or mask a unit where systemctl would.
func (p *placer) unit(u model.ConfigUnit, files []model.ConfigFile) {
	what := "unit " + u.Name
	switch u.State {
	case model.UnitMasked:
		p.out.Entries = append(p.out.Entries, LayerEntry{Path: strings.TrimPrefix(etcUnits, "/") + u.Name, Link: "/dev/null"})
		p.item(what, InEtc, etcUnits+u.Name, "masked where systemctl masks")
	case model.UnitEnabled:
		var text []byte
		for _, f := range files {
			if f.Own && f.Path == etcUnits+u.Name {
				text = f.Data
			}
		}
		links := wantedBy(text)
		for _, l := range links {
			p.out.Entries = append(p.out.Entries, LayerEntry{Path: strings.TrimPrefix(etcUnits, "/") + l + "/" + u.Name, Link: usrUnits + u.Name})
		}
		if len(links) == 0 {
			p.item(what, ByAgent, "", "its [Install] section is the base's, which is not read")
			return
		}
		p.item(what, InEtc, etcUnits+links[0]+"/"+u.Name, "enabled as its [Install] section says")
	default:
		p.item(what, ByAgent, "", "what is to be off is switched off where it was switched on")
	}
}

// wantedBy are the directories of links that a unit's [Install] section asks for.
func wantedBy(unit []byte) []string {
	var out []string
	section := ""
	for line := range strings.Lines(string(unit)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = line
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		suffix := map[string]string{"WantedBy": ".wants", "RequiredBy": ".requires"}[strings.TrimSpace(key)]
		if section != "[Install]" || suffix == "" {
			continue
		}
		for _, target := range strings.Fields(value) {
			if d := target + suffix; !strings.Contains(target, "/") && !strings.Contains(target, "%") && !slices.Contains(out, d) {
				out = append(out, d)
			}
		}
	}
	return out
}

func (p *placer) arguments(os *model.ConfigOS) {
	var args []string
	if os != nil {
		args = os.KernelArguments
	}
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = strconv.Quote(a) // no control characters or quotes are in them, so TOML and Go agree
	}
	text := "# Written by refit. The file is there without arguments too: a directory that goes away removes none.\nkargs = [" + strings.Join(quoted, ", ") + "]\n"
	p.out.Entries = append(p.out.Entries, LayerEntry{Path: kargsFile, Data: []byte(text), Mode: 0o644})
	if len(args) > 0 {
		p.item("kernel arguments", KargsD, "/"+kargsFile, "bootc has no other way; hosts that do not read it are given them by their driver")
	}
}

func isBelow(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// number of an owner: a layer has numbers, names are the node's.
func number(owner string) (int, bool) {
	if owner == "" || owner == "root" {
		return 0, true
	}
	n, err := strconv.Atoi(owner)
	return n, err == nil && n >= 0
}

// perMachine are files that differ from node to node, and accounts, which a node
// changes by itself.
var perMachine = []string{"/etc/hostname", "/etc/hosts", "/etc/machine-id", "/etc/resolv.conf", "/etc/adjtime", "/etc/fstab", "/etc/crypttab", "/etc/passwd", "/etc/group", "/etc/subuid", "/etc/subgid"}

// IsPerMachine reports whether a path of /etc differs from node to node, or the node itself
// changes it: neither an image nor a pool's configuration writes it.
func IsPerMachine(path string) bool { return slices.Contains(perMachine, path) }

// notApplied returns the directory of a path in which an update applies no content of the
// image, "" if it does.
func notApplied(p string) string {
	switch {
	case isBelow(p, "/usr/local"):
		return "usr/local"
	case isBelow(p, "/etc"), isBelow(p, "/usr"):
		return ""
	}
	top, _, _ := strings.Cut(strings.TrimPrefix(path.Clean(p), "/"), "/")
	return top
}

// agentOnly returns why a file is not put into an image, "" if it is.
func agentOnly(f model.ConfigFile) string {
	if why := model.LooksSecret(f.Path, f.Data); why != "" {
		return why + ", and secrets are not put into images"
	}
	if top := notApplied(f.Path); top != "" {
		return "what an image has in /" + top + " is not applied on an update, or is hidden by the node's own"
	}
	if IsPerMachine(f.Path) {
		return "it is the node's own: pools share an image"
	}
	if f.Absent {
		return ""
	}
	_, knownOwner := number(f.Owner)
	_, knownGroup := number(f.Group)
	switch {
	case f.Payload != "":
		return "its bytes come with a bundle, which nodes hold"
	case f.Mode&0o004 == 0:
		return "not every user may read it, but everyone who may pull the image can"
	case !knownOwner || !knownGroup:
		return "only the node knows the number of its owner"
	}
	return ""
}
