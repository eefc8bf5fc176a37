package model

import "testing"

func TestSignaturePolicy(t *testing.T) {
	t.Parallel()
	const accept, reject, signed = `[{"type":"insecureAcceptAnything"}]`, `[{"type":"reject"}]`, `[{"type":"sigstoreSigned","keyPath":"/k"}]`
	const repository = "registry.example:5000/os/edge"
	for name, c := range map[string]struct{ policy, want string }{
		"everything":             {`{"default":` + accept + `}`, SignaturePolicyAccepts},
		"nothing":                {`{"default":` + reject + `}`, SignaturePolicyRejects},
		"signatures by default":  {`{"default":` + signed + `}`, SignaturePolicyRejects},
		"of this repository":     {`{"default":` + accept + `,"transports":{"docker":{"registry.example:5000/os/edge":` + signed + `}}}`, SignaturePolicyBypassed},
		"of its namespace":       {`{"default":` + accept + `,"transports":{"docker":{"registry.example:5000/os":` + signed + `}}}`, SignaturePolicyBypassed},
		"of its host's domain":   {`{"default":` + accept + `,"transports":{"docker":{"*.example":` + reject + `}}}`, SignaturePolicyBypassed},
		"the narrower one wins":  {`{"default":` + reject + `,"transports":{"oci":{"":` + accept + `},"docker":{"registry.example:5000":` + signed + `,"registry.example:5000/os":` + accept + `}}}`, SignaturePolicyAccepts},
		"of another repository":  {`{"default":` + accept + `,"transports":{"docker":{"registry.example:5000/o":` + signed + `}}}`, SignaturePolicyAccepts},
		"registries, but no dir": {`{"default":` + reject + `,"transports":{"docker":{"":` + accept + `}}}`, SignaturePolicyRejects},
		"no requirement":         {`{"default":` + accept + `,"transports":{"docker":{"":[]}}}`, SignaturePolicyBypassed},
	} {
		if got, err := SignaturePolicy([]byte(c.policy), repository); err != nil || got != c.want {
			t.Errorf("%s: %q %v, want %q", name, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "{", "{}", `{"default":"x"}`} {
		if got, err := SignaturePolicy([]byte(bad), repository); err == nil {
			t.Errorf("%q: %s", bad, got)
		}
	}
}
