package imagerefs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/imagetag"
)

// imageFlags are flags that name an image although their names do not say so.
var imageFlags = []string{
	// https://prometheus-operator.dev/docs/platform/operator/
	"prometheus-config-reloader",
	// https://github.com/tektoncd/pipeline/blob/main/config/controller.yaml
	"shell-image-win",
}

var (
	// flagName of an image: acme-http01-solver-image, helperImage, images.
	flagName = regexp.MustCompile(`(?:^|[-._])images?$|[a-z0-9]Images?$`)
	// variableName of an image: RELATED_IMAGE_PROXY, CSI_IMAGE, STRIMZI_KAFKA_IMAGES.
	variableName = regexp.MustCompile(`(?:^|_)IMAGES?(?:_|$)`)
	flagText     = regexp.MustCompile(`^--?([A-Za-z][A-Za-z0-9._-]*)(?:=(.*))?$`)
)

// arguments finds images in --NAME=VALUE and --NAME VALUE of command and args.
func (f *finder) arguments(c *value, path string) {
	var all []place
	for _, key := range []string{"command", "args"} {
		for i, a := range c.get(key).list() {
			all = append(all, place{a, fmt.Sprintf("%s.%s[%d]", path, key, i)})
		}
	}
	for i, a := range all {
		m := flagText.FindStringSubmatch(a.v.text)
		if m == nil || !flagName.MatchString(m[1]) && !slices.Contains(imageFlags, m[1]) {
			continue
		}
		if strings.Contains(a.v.text, "=") {
			f.named(a.v, a.path, m[2], RuleArgument)
		} else if i+1 < len(all) && !strings.HasPrefix(all[i+1].v.text, "-") {
			f.named(all[i+1].v, all[i+1].path, all[i+1].v.text, RuleArgument)
		}
	}
}

// variable finds the image of a variable whose name says so.
func (f *finder) variable(name string, v *value, path string) {
	if v != nil && v.isText && variableName.MatchString(strings.ToUpper(name)) {
		f.named(v, path, v.text, RuleVariable)
	}
}

// named notes the references in a text whose name says that it has images: one, or a list of
// REF or KEY=REF. Unless all are whole references the text is left to the candidates.
func (f *finder) named(v *value, path, text, rule string) {
	if f.seen[v] {
		return
	}
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ';' || r == ' ' || r == '\n' || r == '\t' })
	for i, w := range words {
		if _, after, ok := strings.Cut(w, "="); ok {
			w = after
		}
		words[i] = strings.TrimPrefix(strings.Trim(w, `"'`), dockerPrefix)
		if !isWhole(words[i]) {
			return
		}
	}
	for _, w := range words {
		f.append(v, path, w, rule, false)
	}
	if len(words) > 0 {
		f.seen[v] = true
	}
}

// isWhole reports whether a text is a reference with a path and with a tag or digest. Without
// a path, name:text could be anything.
func isWhole(s string) bool {
	if len(s) > 500 || !strings.Contains(s, "/") {
		return false
	}
	r, err := imagetag.ParseRef(s)
	return err == nil && (r.Tag != "" || r.Digest != "")
}
