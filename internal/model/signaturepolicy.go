package model

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Answers of a signature policy about an image.
const (
	SignaturePolicyAccepts = "accepts"
	// SignaturePolicyRejects: the host does not take the image from a directory.
	SignaturePolicyRejects = "rejects"
	// SignaturePolicyBypassed: it takes the image from a directory without a question, and
	// would not take it from the registry without a signature, or at all.
	SignaturePolicyBypassed = "bypassed"
)

// policyRequirement is one of those that an image must meet, all of them.
type policyRequirement struct {
	Type string `json:"type"`
}

type signaturePolicy struct {
	Default    []policyRequirement                       `json:"default"`
	Transports map[string]map[string][]policyRequirement `json:"transports"`
}

// SignaturePolicy returns the answer of a containers-policy.json(5) about an image that refit
// gives to the host in a directory. It tells whether the host takes the image from there, and
// whether it would take it from its repository as it is.
func SignaturePolicy(policy []byte, repository string) (string, error) {
	var p signaturePolicy
	if err := json.Unmarshal(policy, &p); err != nil {
		return "", fmt.Errorf("signature policy: %w", err)
	}
	if len(p.Default) == 0 {
		return "", fmt.Errorf("signature policy: it has no default")
	}
	switch {
	case !accepts(p.requirements("oci", []string{""})):
		return SignaturePolicyRejects, nil
	case !accepts(p.requirements("docker", policyScopes(repository))):
		return SignaturePolicyBypassed, nil
	}
	return SignaturePolicyAccepts, nil
}

// requirements of the first scope that the policy names.
func (p *signaturePolicy) requirements(transport string, scopes []string) []policyRequirement {
	named := p.Transports[transport]
	for _, s := range scopes {
		if r, ok := named[s]; ok {
			return r
		}
	}
	return p.Default
}

// policyScopes of a repository, the most specific first.
func policyScopes(repository string) []string {
	var out []string
	for at := repository; ; {
		out = append(out, at)
		i := strings.LastIndex(at, "/")
		if i < 0 {
			break
		}
		at = at[:i]
	}
	host, _, _ := strings.Cut(out[len(out)-1], ":")
	for {
		_, rest, ok := strings.Cut(host, ".")
		if !ok {
			return append(out, "")
		}
		out, host = append(out, "*."+rest), rest
	}
}

// accepts reports whether any image meets all requirements. Without one none does, as the
// format demands.
func accepts(all []policyRequirement) bool {
	for _, r := range all {
		if r.Type != "insecureAcceptAnything" {
			return false
		}
	}
	return len(all) > 0
}
