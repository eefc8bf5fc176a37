package ignition

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/refit-dev/refit/internal/model"
)

// Imported is what was carried over.
type Imported struct {
	// Name of a MachineConfig, Role its pool; empty for plain Ignition.
	Name, Role string
	Files      []model.ConfigFile
	Units      []ImportedUnit
	// KernelArguments, SSHKeys by user, Packages.
	KernelArguments []string
	SSHKeys         map[string][]string
	Packages        []string
	// NotImported was not carried over: where, and why.
	NotImported []NotImported
}

// NotImported is a part that was not carried over.
type NotImported struct{ Path, Why string }

// ImportedUnit is a systemd unit with its drop-ins by name.
type ImportedUnit struct {
	Name, State, Contents string
	Dropins               []ImportedDropin
}

// ImportedDropin is one drop-in.
type ImportedDropin struct{ Name, Contents string }

// ErrUnknownConfig is for what is neither Ignition nor a MachineConfig.
var ErrUnknownConfig = errors.New("it is neither Ignition (ignition.version) nor a MachineConfig (kind: MachineConfig)")

// maxInput bounds what is read, in bytes.
const maxInput = 16 << 20

// Import reads one document.
func Import(data []byte) (Imported, error) {
	if len(data) > maxInput {
		return Imported{}, fmt.Errorf("it has %d bytes, at most %d are read", len(data), maxInput)
	}
	var doc map[string]any
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return Imported{}, fmt.Errorf("it is no YAML or JSON object: %w", plainError(err))
	}
	r := &importer{}
	at := configNode{r, "", doc}
	var err error
	switch {
	case doc["kind"] == "MachineConfig":
		err = r.readMachineConfig(at)
	case doc["ignition"] != nil:
		err = r.readIgnition(at)
	default:
		return Imported{}, ErrUnknownConfig
	}
	if err != nil {
		return Imported{}, err
	}
	sort.SliceStable(r.out.NotImported, func(i, j int) bool { return r.out.NotImported[i].Path < r.out.NotImported[j].Path })
	return r.out, nil
}

// plainError takes what was read out of an error: it may be a secret.
func plainError(err error) error {
	first, _, _ := strings.Cut(err.Error(), "\n")
	if i := strings.Index(first, "`"); i >= 0 {
		first = first[:i] + "..."
	}
	return errors.New(first)
}

type importer struct{ out Imported }

func (r *importer) addNotImported(at, why string) {
	r.out.NotImported = append(r.out.NotImported, NotImported{at, why})
}

// readMachineConfig: the Ignition in spec.config, and what OpenShift added.
func (r *importer) readMachineConfig(doc configNode) error {
	doc.consume("apiVersion", "kind", "status")
	meta := doc.object("metadata")
	r.out.Name = meta.text("name")
	labels := meta.object("labels")
	r.out.Role = labels.text("machineconfiguration.openshift.io/role")
	spec := doc.object("spec")
	for _, a := range spec.texts("kernelArguments") {
		r.addArguments("spec.kernelArguments", a)
	}
	for _, e := range spec.texts("extensions") {
		r.addNotImported("spec.extensions", "extension "+e+" is a group of packages that only that distribution knows: name the packages in spec.packages")
	}
	if k := spec.text("kernelType"); k != "" && k != "default" {
		r.addNotImported("spec.kernelType", "kernel "+k+" is a package: name it in spec.packages, or take a base with it")
	}
	for _, key := range []string{"osImageURL", "baseOSExtensionsContainerImage"} {
		if spec.text(key) != "" {
			r.addNotImported("spec."+key, "the OS comes from an OSImage")
		}
	}
	if fips, _ := spec.boolean("fips"); fips {
		r.addNotImported("spec.fips", "it is set when a machine is installed, and cannot be changed")
	}
	if spec.has("config") {
		if err := r.readIgnition(spec.object("config")); err != nil {
			return err
		}
	}
	spec.reportRest("refit has nothing like it")
	doc.reportRest("refit has nothing like it")
	return nil
}

func (r *importer) readIgnition(doc configNode) error {
	ign := doc.object("ignition")
	version := ign.text("version")
	if !strings.HasPrefix(version, "3.") {
		return fmt.Errorf("it is Ignition of version %q; version 3 is read (refit's boot image part brings version 2 up to 3)", version)
	}
	ign.reportRest("it says how Ignition itself works at the first boot")
	storage := doc.object("storage")
	for _, f := range storage.list("files") {
		r.addFile(f)
	}
	for _, d := range storage.list("directories") {
		r.addNotImported(d.at+" "+d.text("path"), "directories come with the files in them; make others with a tmpfiles.d file")
	}
	for _, l := range storage.list("links") {
		r.addNotImported(l.at+" "+l.text("path"), "links are made by a tmpfiles.d file (type L)")
	}
	storage.reportRest("it lays out disks when a machine is installed, and cannot be changed afterwards")
	systemd := doc.object("systemd")
	for _, u := range systemd.list("units") {
		r.addUnit(u)
	}
	systemd.reportRest("refit has nothing like it")
	r.addUsers(doc.object("passwd"))
	args := doc.object("kernelArguments")
	for _, a := range args.texts("shouldExist") {
		r.addArguments(args.at+".shouldExist", a)
	}
	for _, a := range args.texts("shouldNotExist") {
		r.addNotImported(args.at+".shouldNotExist", "argument "+a+": refit takes away only what it gave")
	}
	doc.reportRest("refit has nothing like it")
	return nil
}

// addArguments may be several words in one string.
func (r *importer) addArguments(at, words string) {
	for _, a := range strings.Fields(words) {
		if why := model.KeptArgument(a); why != "" {
			r.addNotImported(at, "argument "+a+": "+why)
			continue
		}
		r.out.KernelArguments = append(r.out.KernelArguments, a)
	}
}

func (r *importer) addUsers(doc configNode) {
	for _, u := range doc.list("users") {
		name := u.text("name")
		keys := u.texts("sshAuthorizedKeys")
		if len(keys) > 0 {
			if r.out.SSHKeys == nil {
				r.out.SSHKeys = map[string][]string{}
			}
			r.out.SSHKeys[name] = append(r.out.SSHKeys[name], keys...)
		}
		if u.has("passwordHash") {
			u.consume("passwordHash")
			r.addNotImported(u.at+".passwordHash", "passwords are secrets, which every node would read")
		}
		u.reportRest("users come with the image (sysusers.d)")
	}
	doc.reportRest("users and groups come with the image (sysusers.d)")
}

func (r *importer) addUnit(u configNode) {
	out := ImportedUnit{Name: u.text("name"), Contents: u.text("contents")}
	mask, _ := u.boolean("mask")
	enabled, said := u.boolean("enabled")
	switch {
	case mask && out.Contents != "":
		r.addNotImported(u.at+" "+out.Name, "a unit with contents cannot be masked")
		return
	case mask:
		out.State = model.UnitMasked
	case enabled:
		out.State = model.UnitEnabled
	case said:
		out.State = model.UnitDisabled
	}
	for _, d := range u.list("dropins") {
		out.Dropins = append(out.Dropins, ImportedDropin{d.text("name"), d.text("contents")})
		d.reportRest("refit has nothing like it")
	}
	u.reportRest("refit has nothing like it")
	if out.State == "" && out.Contents == "" && len(out.Dropins) == 0 {
		r.addNotImported(u.at+" "+out.Name, "it says nothing of the unit")
		return
	}
	r.out.Units = append(r.out.Units, out)
}
