package convert

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/nodeconfig"
)

// ConfigMap is the data of a ConfigMap. The agent has this in place of the type of core/v1: with one
// type of that package, a program links them all.
type ConfigMap struct {
	Data       map[string]string `json:"data"`
	BinaryData map[string][]byte `json:"binaryData"`
}

// ConfigMaps returns a ConfigMap in the namespace refit-nodes, nil if it does not exist.
type ConfigMaps func(ctx context.Context, name string) (*ConfigMap, error)

// NodeConfigSource converts a NodeConfig with the contents of its files. Missing contents are
// listed in its Problems.
func NodeConfigSource(ctx context.Context, maps ConfigMaps, c *v1alpha1.NodeConfig) (nodeconfig.Source, error) {
	s := nodeconfig.Source{Name: c.Name, SandboxImage: c.Spec.SandboxImage}
	for i := range c.Spec.Files {
		f := &c.Spec.Files[i]
		cf := configFile(f)
		problem, err := fileContents(ctx, maps, f.Contents, &cf.Data)
		if err != nil {
			return s, err
		}
		if problem != "" {
			s.Problems = append(s.Problems, "file "+f.Path+": "+problem)
		}
		s.Files = append(s.Files, cf)
	}
	for _, u := range c.Spec.Units {
		cu := nodeconfig.Unit{Name: u.Name, State: u.State, Contents: u.Contents, Disruption: model.Disruption(u.Disruption)}
		for _, d := range u.Dropins {
			cu.Dropins = append(cu.Dropins, nodeconfig.Dropin{Name: d.Name, Contents: d.Contents})
		}
		s.Units = append(s.Units, cu)
	}
	configLists(c, &s)
	if c.Spec.Kubelet != nil && len(c.Spec.Kubelet.Raw) > 0 {
		if err := json.Unmarshal(c.Spec.Kubelet.Raw, &s.Kubelet); err != nil {
			s.Problems = append(s.Problems, "spec.kubelet is not an object: "+err.Error())
		}
	}
	return s, nil
}

// configLists converts the settings that have no file contents.
func configLists(c *v1alpha1.NodeConfig, s *nodeconfig.Source) {
	for _, f := range c.Spec.Fields {
		s.Fields = append(s.Fields, model.ConfigField(f))
	}
	for _, k := range c.Spec.Certificates {
		s.Certificates = append(s.Certificates, model.ConfigCertificate{Name: k.Name, NotBefore: k.NotBefore, DaysLeft: int(k.DaysLeft)})
	}
	for _, a := range c.Spec.KernelArguments {
		s.KernelArguments = append(s.KernelArguments, string(a))
	}
	for _, k := range c.Spec.SSHAuthorizedKeys {
		s.SSHKeys = append(s.SSHKeys, nodeconfig.SSHKeys(k))
	}
	for _, p := range c.Spec.Packages {
		s.Packages = append(s.Packages, string(p))
	}
}

// configFile converts a file without its contents.
func configFile(f *v1alpha1.NodeFile) model.ConfigFile {
	cf := model.ConfigFile{Path: f.Path, Mode: 0o644, Owner: orDefault(f.Owner, "root"), Group: orDefault(f.Group, "root"), Absent: f.Absent,
		Disruption: model.Disruption(f.Disruption), Units: slices.Clone(f.Units)}
	if f.Mode != nil {
		cf.Mode = uint32(*f.Mode)
	}
	if f.Contents != nil && f.Contents.Payload != nil {
		cf.Payload, cf.Digest = f.Contents.Payload.Name, f.Contents.Payload.Digest
	}
	return cf
}

func orDefault(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func fileContents(ctx context.Context, maps ConfigMaps, from *v1alpha1.FileContents, into *[]byte) (problem string, err error) {
	switch {
	case from == nil:
	case from.Inline != nil:
		*into = []byte(*from.Inline)
	case from.Base64 != nil:
		*into = from.Base64
	case from.ConfigMap != nil:
		cm, err := maps(ctx, from.ConfigMap.Name)
		if err != nil {
			return "", err
		}
		if cm == nil {
			return "there is no ConfigMap " + from.ConfigMap.Name + " in namespace " + v1alpha1.NodesNamespace, nil
		}
		text, ok := cm.Data[from.ConfigMap.Key]
		*into = []byte(text)
		if !ok {
			if *into, ok = cm.BinaryData[from.ConfigMap.Key]; !ok {
				return "ConfigMap " + from.ConfigMap.Name + " has no key " + from.ConfigMap.Key, nil
			}
		}
	}
	return "", nil
}
