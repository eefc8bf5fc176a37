package lint

import (
	"strconv"

	"go.yaml.in/yaml/v3"
)

// at finds a value below a mapping, nil if it is not there.
func at(n *yaml.Node, path ...string) *yaml.Node {
	for _, key := range path {
		n = child(n, key)
	}
	return n
}

func child(n *yaml.Node, key string) *yaml.Node {
	n = follow(n)
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return follow(n.Content[i+1])
		}
	}
	return nil
}

// follow an alias to what it stands for; an alias of an alias does not exist.
func follow(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func scalar(n *yaml.Node, path ...string) string {
	n = at(n, path...)
	if n == nil || n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return ""
	}
	return n.Value
}

func isTrue(n *yaml.Node, path ...string) bool { return scalar(n, path...) == "true" }

// number, or or if there is none.
func number(n *yaml.Node, or int, path ...string) int {
	v, err := strconv.Atoi(scalar(n, path...))
	if err != nil {
		return or
	}
	return v
}

func items(n *yaml.Node, path ...string) []*yaml.Node {
	n = at(n, path...)
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	out := make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		out[i] = follow(c)
	}
	return out
}

func texts(n *yaml.Node, path ...string) []string {
	var out []string
	for _, i := range items(n, path...) {
		out = append(out, scalar(i))
	}
	return out
}

func stringMap(n *yaml.Node, path ...string) map[string]string {
	n = at(n, path...)
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	out := map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		out[n.Content[i].Value] = scalar(n.Content[i+1])
	}
	return out
}

func lineOf(n *yaml.Node, path ...string) int {
	if n = at(n, path...); n != nil {
		return n.Line
	}
	return 0
}
