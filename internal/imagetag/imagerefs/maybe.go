package imagerefs

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/refit-dev/refit/internal/imagetag"
)

// maxText is how much of a text is searched for candidates, in bytes.
const maxText = 1 << 20

var (
	// imageKey is the name of a field that may be an image.
	imageKey = regexp.MustCompile(`(?:^|[-_.])image$|[a-z0-9]Image$`)
	// imageLine is a field image in a text, for example in the values of a chart.
	imageLine = regexp.MustCompile(`(?mi)^[ \t-]*"?[a-z0-9_.-]*image"?[ \t]*[:=][ \t]*["']?([a-z0-9][^\s"',{}]*)`)
)

// candidates finds text with the form of a reference that no rule explained.
func (f *finder) candidates(v *value, path, key string) {
	if f.seen[v] || len(f.refs) > maxRefs {
		return
	}
	for i, item := range v.items {
		f.candidates(item, fmt.Sprintf("%s[%d]", path, i), key)
	}
	if imageKey.MatchString(key) {
		if image := v.composed(); image != "" && isReference(image) {
			f.add(v, path, image, RuleImageLike, true)
			return
		}
	}
	for i, k := range v.keys {
		f.candidates(v.fields[i], join(path, k), k)
	}
	if v.isText {
		f.candidate(v, path, key)
	}
}

func (f *finder) candidate(v *value, path, key string) {
	text := strings.TrimPrefix(strings.TrimSpace(v.text), dockerPrefix)
	switch {
	case imageKey.MatchString(key) && isReference(text):
		f.add(v, path, text, RuleImageLike, true)
		return
	case len(text) > maxText:
		text = text[:maxText]
	}
	have := map[string]bool{}
	note := func(s, rule string) {
		if !have[s] {
			have[s] = true
			f.append(v, path, s, rule, true)
		}
	}
	for _, m := range imageLine.FindAllStringSubmatch(text, -1) {
		if isReference(m[1]) {
			note(m[1], RuleImageLike)
		}
	}
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\r\n,;\"'`()[]{}<>|", r) }) {
		if _, after, ok := strings.Cut(word, "="); ok {
			word = after
		}
		if word = strings.TrimPrefix(word, dockerPrefix); resembles(word) {
			note(word, RuleTextLike)
		}
	}
	if len(have) > 0 {
		f.seen[v] = true
	}
}

// isReference reports whether a text is a reference with a path, a tag or a digest.
func isReference(s string) bool {
	if len(s) > 500 {
		return false
	}
	r, err := imagetag.ParseRef(s)
	return err == nil && (r.Tag != "" || r.Digest != "" || strings.Contains(s, "/"))
}

// taintEffects end the text of a taint, which has the form of a reference with a tag.
var taintEffects = map[string]bool{"NoSchedule": true, "PreferNoSchedule": true, "NoExecute": true}

// resembles reports whether a text is a whole reference that begins with a registry.
func resembles(s string) bool {
	host, _, found := strings.Cut(s, "/")
	if !found || !strings.ContainsAny(host, ".:") && host != "localhost" || !isWhole(s) {
		return false
	}
	r, _ := imagetag.ParseRef(s)
	return !taintEffects[r.Tag]
}
