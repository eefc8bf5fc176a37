package bundle

import "strings"

// RefusedResource says why an object may not be among a bundle's cluster resources,
// "" if it may. Asked when the bundle is made, and again before it is applied.
func RefusedResource(apiVersion, kind, name string) string {
	switch {
	case apiVersion == "" || kind == "" || name == "":
		return "apiVersion, kind and metadata.name are needed"
	case kind == "Secret" && apiVersion == "v1":
		return "Secret " + name + " is refused: every node reads a bundle"
	case strings.HasPrefix(apiVersion, "refit.dev/"):
		return kind + " " + name + " is refused: a bundle must not approve or start anything of refit"
	}
	return ""
}
