package oci

import (
	"path"
	"strings"
)

// dockerHub is the host of Docker Hub's API.
const dockerHub = "index.docker.io"

// LoginEntry is what a key of a docker configuration covers, in the form that FindLogin looks
// for: without scheme, and without the version at the end of old logins
// (https://index.docker.io/v1/).
func LoginEntry(key string) string {
	key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
	host, rest, _ := strings.Cut(strings.TrimSuffix(key, "/"), "/")
	if host == "docker.io" || host == "registry-1.docker.io" {
		host = dockerHub
	}
	if rest == "" || rest == "v1" || rest == "v2" {
		return host
	}
	return host + "/" + rest
}

// FindLogin returns the longest entry that covers a repository with its registry. Entries
// that name the host come before those with a wildcard.
func FindLogin[V any](entries map[string]V, repository string) (found V, ok bool) {
	for at := repository; ; {
		if v, has := entries[at]; has {
			return v, true
		}
		if v, has := loginByWildcard(entries, at); has {
			return v, true
		}
		i := strings.LastIndexByte(at, '/')
		if i < 0 {
			return found, false
		}
		at = at[:i]
	}
}

func loginByWildcard[V any](entries map[string]V, at string) (found V, ok bool) {
	longest := ""
	for entry, v := range entries {
		if strings.ContainsAny(entry, "*?[") && loginCovers(entry, at) && (len(entry) > len(longest) || len(entry) == len(longest) && entry > longest) {
			longest, found, ok = entry, v, true
		}
	}
	return found, ok
}

// loginCovers compares label by label: a wildcard stands for one label of the host.
func loginCovers(entry, at string) bool {
	host, rest, _ := strings.Cut(entry, "/")
	atHost, atRest, _ := strings.Cut(at, "/")
	a, b := strings.Split(host, "."), strings.Split(atHost, ".")
	if rest != atRest || len(a) != len(b) {
		return false
	}
	for i := range a {
		if ok, err := path.Match(a[i], b[i]); err != nil || !ok {
			return false
		}
	}
	return true
}
