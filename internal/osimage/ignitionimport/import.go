package ignitionimport

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/refit-dev/refit/internal/model"
)

// Config is what was carried over.
type Config struct {
	// Name of a MachineConfig, Role its pool; empty for plain Ignition.
	Name, Role string
	Files      []model.ConfigFile
	Units      []Unit
	// KernelArguments, SSHKeys by user, Packages.
	KernelArguments []string
	SSHKeys         map[string][]string
	Packages        []string
	// Left was not carried over: where, and why.
	Left []Left
}

// Left is a part that was not carried over.
type Left struct{ At, Why string }

// Unit is a systemd unit with its drop-ins by name.
type Unit struct {
	Name, State, Contents string
	Dropins               []Dropin
}

// Dropin is one drop-in.
type Dropin struct{ Name, Contents string }

// ErrNeither is for what is neither Ignition nor a MachineConfig.
var ErrNeither = errors.New("it is neither Ignition (ignition.version) nor a MachineConfig (kind: MachineConfig)")

// maxInput bounds what is read, in bytes.
const maxInput = 16 << 20

// Import reads one document.
func Import(data []byte) (Config, error) {
	if len(data) > maxInput {
		return Config{}, fmt.Errorf("it has %d bytes, at most %d are read", len(data), maxInput)
	}
	var doc map[string]any
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return Config{}, fmt.Errorf("it is no YAML or JSON object: %w", plain(err))
	}
	r := &reader{}
	at := node{r, "", doc}
	var err error
	switch {
	case doc["kind"] == "MachineConfig":
		err = r.machineConfig(at)
	case doc["ignition"] != nil:
		err = r.ignition(at)
	default:
		return Config{}, ErrNeither
	}
	if err != nil {
		return Config{}, err
	}
	sort.SliceStable(r.out.Left, func(i, j int) bool { return r.out.Left[i].At < r.out.Left[j].At })
	return r.out, nil
}

// plain takes what was read out of an error: it may be a secret.
func plain(err error) error {
	first, _, _ := strings.Cut(err.Error(), "\n")
	if i := strings.Index(first, "`"); i >= 0 {
		first = first[:i] + "..."
	}
	return errors.New(first)
}

type reader struct{ out Config }

func (r *reader) left(at, why string) { r.out.Left = append(r.out.Left, Left{at, why}) }

// machineConfig: the Ignition in spec.config, and what OpenShift added.
func (r *reader) machineConfig(doc node) error {
	doc.take("apiVersion", "kind", "status")
	meta := doc.object("metadata")
	r.out.Name = meta.text("name")
	labels := meta.object("labels")
	r.out.Role = labels.text("machineconfiguration.openshift.io/role")
	spec := doc.object("spec")
	for _, a := range spec.texts("kernelArguments") {
		r.argument("spec.kernelArguments", a)
	}
	for _, e := range spec.texts("extensions") {
		r.left("spec.extensions", "extension "+e+" is a group of packages that only that distribution knows: name the packages in spec.packages")
	}
	if k := spec.text("kernelType"); k != "" && k != "default" {
		r.left("spec.kernelType", "kernel "+k+" is a package: name it in spec.packages, or take a base with it")
	}
	for _, key := range []string{"osImageURL", "baseOSExtensionsContainerImage"} {
		if spec.text(key) != "" {
			r.left("spec."+key, "the OS comes from an OSImage")
		}
	}
	if fips, _ := spec.truth("fips"); fips {
		r.left("spec.fips", "it is set when a machine is installed, and cannot be changed")
	}
	if spec.has("config") {
		if err := r.ignition(spec.object("config")); err != nil {
			return err
		}
	}
	spec.rest("refit has nothing like it")
	doc.rest("refit has nothing like it")
	return nil
}

func (r *reader) ignition(doc node) error {
	ign := doc.object("ignition")
	version := ign.text("version")
	if !strings.HasPrefix(version, "3.") {
		return fmt.Errorf("it is Ignition of version %q; version 3 is read (refit's boot image part brings version 2 up to 3)", version)
	}
	ign.rest("it says how Ignition itself works at the first boot")
	storage := doc.object("storage")
	for _, f := range storage.list("files") {
		r.file(f)
	}
	for _, d := range storage.list("directories") {
		r.left(d.at+" "+d.text("path"), "directories come with the files in them; make others with a tmpfiles.d file")
	}
	for _, l := range storage.list("links") {
		r.left(l.at+" "+l.text("path"), "links are made by a tmpfiles.d file (type L)")
	}
	storage.rest("it lays out disks when a machine is installed, and cannot be changed afterwards")
	systemd := doc.object("systemd")
	for _, u := range systemd.list("units") {
		r.unit(u)
	}
	systemd.rest("refit has nothing like it")
	r.passwd(doc.object("passwd"))
	args := doc.object("kernelArguments")
	for _, a := range args.texts("shouldExist") {
		r.argument(args.at+".shouldExist", a)
	}
	for _, a := range args.texts("shouldNotExist") {
		r.left(args.at+".shouldNotExist", "argument "+a+": refit takes away only what it gave")
	}
	doc.rest("refit has nothing like it")
	return nil
}

// argument may be several words in one string.
func (r *reader) argument(at, words string) {
	for _, a := range strings.Fields(words) {
		if why := model.KeptArgument(a); why != "" {
			r.left(at, "argument "+a+": "+why)
			continue
		}
		r.out.KernelArguments = append(r.out.KernelArguments, a)
	}
}

func (r *reader) passwd(doc node) {
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
			u.take("passwordHash")
			r.left(u.at+".passwordHash", "passwords are secrets, which every node would read")
		}
		u.rest("users come with the image (sysusers.d)")
	}
	doc.rest("users and groups come with the image (sysusers.d)")
}

func (r *reader) unit(u node) {
	out := Unit{Name: u.text("name"), Contents: u.text("contents")}
	mask, _ := u.truth("mask")
	enabled, said := u.truth("enabled")
	switch {
	case mask && out.Contents != "":
		r.left(u.at+" "+out.Name, "a unit with contents cannot be masked")
		return
	case mask:
		out.State = model.UnitMasked
	case enabled:
		out.State = model.UnitEnabled
	case said:
		out.State = model.UnitDisabled
	}
	for _, d := range u.list("dropins") {
		out.Dropins = append(out.Dropins, Dropin{d.text("name"), d.text("contents")})
		d.rest("refit has nothing like it")
	}
	u.rest("refit has nothing like it")
	if out.State == "" && out.Contents == "" && len(out.Dropins) == 0 {
		r.left(u.at+" "+out.Name, "it says nothing of the unit")
		return
	}
	r.out.Units = append(r.out.Units, out)
}
