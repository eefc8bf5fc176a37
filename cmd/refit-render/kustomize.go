package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/imagetag/imagerefs"
)

// renderKustomization builds the kustomization in a directory.
func renderKustomization(dir string) ([]manifest, error) {
	// An absolute path is never taken for a repository.
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	files := &localFiles{FileSystem: filesys.MakeFsOnDisk()}
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, root)
	if files.refused != nil { // kustomize reports a file that it cannot read as missing
		err = files.refused
	}
	if err != nil {
		return nil, err
	}
	data, err := m.AsYaml()
	if err != nil {
		return nil, err
	}
	return []manifest{{file: filepath.Base(root), data: data}}, nil
}

// localFiles are the files of a kustomization. kustomize reads each kustomization from it
// before it follows its entries, so one that leaves this computer is refused here.
type localFiles struct {
	filesys.FileSystem
	read    int64
	refused error
}

func (l *localFiles) ReadFile(path string) ([]byte, error) {
	data, err := fsutil.ReadSmall(path, imagerefs.MaxSize)
	if err != nil {
		return nil, err
	}
	if l.read += int64(len(data)); l.read > maxRendered {
		l.refused = fmt.Errorf("%s: its files have more than %d bytes", path, maxRendered)
		return nil, l.refused
	}
	remote := remoteIn(data, slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(path)))
	if remote != "" {
		l.refused = fmt.Errorf("%s: entry %q is not a local path, and refit fetches nothing for a kustomization. Download it, and name the local copy", path, remote)
		return nil, l.refused
	}
	return data, nil
}

// builtin is the API version of the configuration of a plugin that kustomize has in itself.
const builtin = "builtin"

// remoteIn returns the first entry of a kustomization, or of the configuration of a builtin
// plugin, that is not a local path. Text that is not YAML is left to kustomize.
func remoteIn(data []byte, kustomization bool) string {
	if !kustomization && !bytes.Contains(data, []byte(builtin)) {
		return ""
	}
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		if d.Decode(&doc) != nil {
			return ""
		}
		if !kustomization && !isBuiltin(&doc) {
			continue
		}
		if remote := remoteEntry(&doc, false); remote != "" {
			return remote
		}
	}
}

func isBuiltin(doc *yaml.Node) bool {
	var head struct {
		APIVersion string `yaml:"apiVersion"`
	}
	return doc.Decode(&head) == nil && head.APIVersion == builtin
}

// remoteFields of a kustomization, and of the configuration of a builtin plugin, may be URLs.
var remoteFields = []string{"resources", "bases", "components", "crds", "configurations", "generators", "transformers", "validators",
	"patchesStrategicMerge", "patchesJson6902", "patches", "replacements", "openapi", "files", "envs", "env", "path", "paths"}

// remoteEntry returns the first such entry. in: the value is below one of remoteFields.
func remoteEntry(n *yaml.Node, in bool) string {
	switch {
	case n.Kind == yaml.ScalarNode && in:
		return remoteText(n.Value)
	case n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if s := remoteEntry(n.Content[i+1], readsFile(n.Content[i].Value, in)); s != "" {
				return s
			}
		}
	default:
		for _, c := range n.Content {
			if s := remoteEntry(c, in); s != "" {
				return s
			}
		}
	}
	return ""
}

// readsFile reports whether the value of a field may name a file. in: the field is below one that does.
func readsFile(key string, in bool) bool {
	// A patch in the file itself is content, not a path.
	return key != "patch" && (in && !isPlainField(key) || slices.Contains(remoteFields, key))
}

// isPlainField is a field next to a path that no file is read from.
func isPlainField(key string) bool {
	return slices.Contains([]string{"target", "options", "source", "targets"}, key)
}

// remoteText checks one entry: a path, KEY=PATH, or the text of a plugin's configuration.
func remoteText(s string) string {
	if strings.Contains(s, "\n") {
		return remoteIn([]byte(s), false)
	}
	_, value, _ := strings.Cut(s, "=")
	if isRemote(s) || isRemote(value) {
		return s
	}
	return ""
}

// isRemote reports whether an entry of a kustomization is not a local path: kustomize fetches
// URLs, and clones what has the form of a repository.
func isRemote(s string) bool {
	s = strings.ToLower(strings.TrimSpace(s))
	first, _, _ := strings.Cut(s, "/")
	return strings.Contains(s, "://") || strings.HasPrefix(s, "git::") || strings.Contains(first, "@") ||
		strings.HasPrefix(s, "github.com/") || strings.HasPrefix(s, "github.com:")
}
