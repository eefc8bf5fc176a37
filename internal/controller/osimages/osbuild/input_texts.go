package osbuild

import (
	"context"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/osimage"
)

// Texts are the Containerfiles of an OSImage: the one for all architectures, those of
// single ones, and the hash of the files next to them.
type Texts struct {
	Text    string
	Per     map[string]string
	Context string
	// Problem is one that a person has to fix.
	Problem string
}

// ReadTexts reads and checks them.
func ReadTexts(ctx context.Context, live client.Reader, o *v1alpha1.OSImage) (out Texts, err error) {
	c := o.Spec.Containerfile
	if c == nil {
		return Texts{}, nil
	}
	out.Per = map[string]string{}
	var problems []string
	one := func(inline string, ref *v1alpha1.ConfigMapKey, whose string) (string, error) {
		text, problem := inline, ""
		if ref != nil {
			var err error
			if text, problem, err = Text(ctx, live, ref); err != nil {
				return "", err
			}
		}
		if problem == "" && text != "" {
			problem = strings.Join(osimage.CheckContainerfile(text).Problems, "; ")
		}
		if problem != "" {
			problems = append(problems, "Containerfile"+whose+": "+problem)
		}
		return text, nil
	}
	if out.Text, err = one(c.Inline, c.ConfigMap, ""); err != nil {
		return out, err
	}
	for _, a := range c.PerArchitecture {
		if out.Per[a.Architecture], err = one(a.Inline, a.ConfigMap, " for "+a.Architecture); err != nil {
			return out, err
		}
	}
	out.Problem = strings.Join(problems, "; ")
	return out, nil
}
