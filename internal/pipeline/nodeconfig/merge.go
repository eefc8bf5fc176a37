package nodeconfig

import (
	"encoding/json"
	"fmt"
	"path"
	"sort"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// Source is one NodeConfig, with the contents of its files.
type Source struct {
	// Name of the NodeConfig.
	Name string
	// Files; no Disruption means the default.
	Files []model.ConfigFile
	Units []Unit
	// Kubelet are fields of a KubeletConfiguration.
	Kubelet      map[string]any
	Certificates []model.ConfigCertificate
	SandboxImage string
	// Fields that external updaters change.
	Fields []model.ConfigField
	// KernelArguments, SSHKeys and Packages of the OS.
	KernelArguments []string
	SSHKeys         []SSHKeys
	Packages        []string
	// Problems that were found when it was read: a ConfigMap that is not there.
	Problems []string
}

// Unit is a unit with its files.
type Unit struct {
	Name, State, Contents string
	Dropins               []Dropin
	Disruption            model.Disruption
}

// Dropin is one file of a unit's .d directory.
type Dropin struct{ Name, Contents string }

// Reason words; the catalogue of the API has the same.
const (
	reasonConflict = "ConfigConflict"
	reasonInvalid  = "ConfigInvalid"
)

// maxBytes bounds a rendered configuration: it must fit a Content.
const maxBytes = 900_000

const unitDir = "/etc/systemd/system/"

// Merge makes one configuration of the sources that match a node.
func Merge(sources []Source) (model.NodeConfig, []model.Blocker) {
	m := merger{owner: map[string]string{}, kubelet: map[string]any{}, keys: map[string]map[string]string{}}
	sources = append([]Source(nil), sources...)
	sort.Slice(sources, func(i, j int) bool { return sources[i].Name < sources[j].Name })
	for _, s := range sources {
		m.add(s)
	}
	return m.end()
}

type merger struct {
	c        model.NodeConfig
	blockers []model.Blocker
	// owner has the source of everything that may be set once, by name of the thing.
	owner   map[string]string
	kubelet map[string]any
	// keys of every user: what makes the key, and the whole line.
	keys map[string]map[string]string
}

func (m *merger) refuse(source, why string) {
	m.blockers = append(m.blockers, model.Blocker{Reason: reasonInvalid, Object: "NodeConfig/" + source,
		Message: "NodeConfig " + source + ": " + why, Fix: "change spec of NodeConfig " + source})
}

// take claims a thing for a source; false if another has it.
func (m *merger) take(thing, source string) bool {
	other, taken := m.owner[thing]
	if !taken {
		m.owner[thing] = source
		return true
	}
	if other == source {
		m.refuse(source, thing+" is there twice, once as a file and once by its unit")
		return false
	}
	m.blockers = append(m.blockers, model.Blocker{Reason: reasonConflict, Object: "NodeConfig/" + source,
		Message: fmt.Sprintf("NodeConfigs %s and %s both want %s on the same node", other, source, thing),
		Fix:     "take it out of one of them, or let their selectors match different nodes"})
	return false
}

func (m *merger) add(s Source) {
	for _, p := range s.Problems {
		m.refuse(s.Name, p)
	}
	for _, f := range s.Files {
		m.file(s.Name, f)
	}
	for _, u := range s.Units {
		m.unit(s.Name, u)
	}
	for _, c := range s.Certificates {
		if m.take("certificate "+c.Name, s.Name) {
			m.c.Certificates = append(m.c.Certificates, c)
		}
	}
	for _, f := range s.Fields {
		m.external(s.Name, f)
	}
	m.fields(s.Name, "", s.Kubelet, m.kubelet)
	if s.SandboxImage != "" && m.take("the sandbox image", s.Name) {
		m.c.SandboxImage = s.SandboxImage
	}
	m.arguments(s)
	for _, k := range s.SSHKeys {
		m.sshKeys(s.Name, k)
	}
	m.packages(s)
}

func (m *merger) file(source string, f model.ConfigFile) {
	if why := model.ProtectedPath(f.Path); why != "" {
		m.refuse(source, "file "+f.Path+" is refused: "+why)
		return
	}
	for _, u := range f.Units {
		if why := model.ProtectedUnit(u, model.UnitEnabled); why != "" {
			m.refuse(source, "file "+f.Path+" would restart "+u+": "+why)
			return
		}
	}
	if why := model.NodeSecret(f.Path, f.Data); why != "" {
		m.blockers = append(m.blockers, model.Blocker{Reason: reasonInvalid, Object: "NodeConfig/" + source,
			Message: "NodeConfig " + source + ": file " + f.Path + " is refused: " + why + ", and what a NodeConfig says can be read in the API",
			Fix:     "take the secret out of NodeConfig " + source + ". Put it on the node during installation, or let a unit fetch it with the node's own identity. Then name its path in the file"})
		return
	}
	if !m.take("file "+f.Path, source) {
		return
	}
	m.c.Files = append(m.c.Files, withDefaults(f))
}

func (m *merger) external(source string, f model.ConfigField) {
	if why := model.UnreadablePath(f.File); why != "" {
		m.refuse(source, "field "+f.Path+" cannot be seen in "+f.File+": "+why)
		return
	}
	if m.take("field "+f.Path, source) {
		m.c.External = append(m.c.External, f)
	}
}

// readers are services that read a directory when they start.
var readers = map[string]string{
	"/etc/sysctl.d":       "systemd-sysctl.service",
	"/etc/modules-load.d": "systemd-modules-load.service",
	"/etc/tmpfiles.d":     "systemd-tmpfiles-setup.service",
	"/etc/sysusers.d":     "systemd-sysusers.service",
}

func withDefaults(f model.ConfigFile) model.ConfigFile {
	if f.Absent {
		f.Mode, f.Owner, f.Group, f.Data, f.Payload, f.Digest = 0, "", "", nil, "", ""
	}
	if r := readers[path.Dir(f.Path)]; r != "" && len(f.Units) == 0 {
		f.Units = []string{r}
		if f.Disruption == "" {
			f.Disruption = model.DisruptionReload
		}
	}
	switch {
	case f.Disruption != "":
	case len(f.Units) > 0:
		f.Disruption = model.DisruptionRestart
	default:
		f.Disruption = model.DisruptionNone
	}
	sort.Strings(f.Units)
	return f
}

func (m *merger) unit(source string, u Unit) {
	state := u.State
	if state == "" {
		state = model.UnitEnabled // for the question whether it may be touched
	}
	if why := model.ProtectedUnit(u.Name, state); why != "" {
		m.refuse(source, fmt.Sprintf("unit %s cannot be %s: %s", u.Name, state, why))
		return
	}
	if u.Disruption == "" {
		u.Disruption = model.DisruptionRestart
	}
	write := func(path, text string) {
		m.file(source, model.ConfigFile{Path: path, Mode: 0o644, Owner: "root", Group: "root", Data: []byte(text), Disruption: u.Disruption, Units: []string{u.Name}, Own: true})
	}
	if u.Contents != "" {
		write(unitDir+u.Name, u.Contents)
	}
	for _, d := range u.Dropins {
		write(unitDir+u.Name+".d/"+d.Name, d.Contents)
	}
	if u.State != "" && m.take("unit "+u.Name, source) {
		m.c.Units = append(m.c.Units, model.ConfigUnit{Name: u.Name, State: u.State, Disruption: u.Disruption})
	}
}

// keptFields of a KubeletConfiguration would take the node away from its
// cluster or its pods.
var keptFields = map[string]string{
	"staticPodPath":            "the control plane's pods are there",
	"containerRuntimeEndpoint": "the node's pods run in that runtime",
	"imageServiceEndpoint":     "the node's images are in that runtime",
	"cgroupDriver":             "it must be the runtime's, and changing it loses the pods",
	"authentication":           "the API server reaches the kubelet by it",
	"authorization":            "the API server reaches the kubelet by it",
	"port":                     "the API server reaches the kubelet by it",
}

// fields merges nested maps; a value that is not a map may be set once.
func (m *merger) fields(source, at string, from, into map[string]any) {
	names := make([]string, 0, len(from))
	for k := range from {
		names = append(names, k)
	}
	sort.Strings(names)
	for _, k := range names {
		if at == "" && (k == "apiVersion" || k == "kind") {
			continue
		}
		if why := keptFields[k]; at == "" && why != "" {
			m.refuse(source, "the kubelet's field "+k+" is refused: "+why)
			continue
		}
		if deeper := m.deeper(source, at+k, from[k], into, k); deeper != nil {
			m.fields(source, at+k+".", from[k].(map[string]any), deeper)
			continue
		}
		if m.take("the kubelet's field "+at+k, source) {
			into[k] = from[k]
		}
	}
}

// deeper is the map to go on in, nil if the value is none or a plain value is
// there already.
func (m *merger) deeper(source, field string, value any, into map[string]any, k string) map[string]any {
	if nested, ok := value.(map[string]any); !ok || len(nested) == 0 {
		return nil
	}
	if into[k] == nil {
		into[k] = map[string]any{}
		m.owner["the kubelet's field "+field] = source
	}
	deeper, _ := into[k].(map[string]any)
	return deeper
}

func (m *merger) end() (model.NodeConfig, []model.Blocker) {
	c := &m.c
	m.keyFiles()
	sort.Strings(c.Packages)
	sort.Slice(c.Files, func(i, j int) bool { return c.Files[i].Path < c.Files[j].Path })
	sort.Slice(c.Units, func(i, j int) bool { return c.Units[i].Name < c.Units[j].Name })
	sort.Slice(c.External, func(i, j int) bool { return c.External[i].Path < c.External[j].Path })
	sort.Slice(c.Certificates, func(i, j int) bool { return c.Certificates[i].Name < c.Certificates[j].Name })
	m.nested()
	if len(m.kubelet) > 0 {
		m.kubelet["apiVersion"], m.kubelet["kind"] = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
		text, err := json.Marshal(m.kubelet)
		if err != nil {
			m.refuse("", "the kubelet's configuration is no JSON: "+err.Error())
		}
		c.Kubelet = string(text)
	}
	if c.Empty() || len(m.blockers) > 0 {
		return model.NodeConfig{}, m.blockers
	}
	c.Version = model.ConfigVersion
	if n := len(c.JSON()); n > maxBytes {
		return model.NodeConfig{}, []model.Blocker{{Reason: reasonInvalid,
			Message: fmt.Sprintf("the configuration of a node is %d bytes, at most %d go", n, maxBytes),
			Fix:     "bring large files with an image or a package instead"}}
	}
	return *c, nil
}

// nested: a path that is a file in one place and a directory in another cannot be.
func (m *merger) nested() {
	for i := 1; i < len(m.c.Files); i++ {
		a, b := m.c.Files[i-1].Path, m.c.Files[i].Path
		if strings.HasPrefix(b, a+"/") {
			m.refuse(m.owner["file "+b], "file "+b+" is below "+a+", which NodeConfig "+m.owner["file "+a]+" wants to be a file")
		}
	}
}
