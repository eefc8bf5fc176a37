package osimage

import (
	"fmt"
	"regexp"
	"strings"
)

// ConfigStage is the name of the generated stage. The user's last stage must derive from it.
const ConfigStage = "configs"

// Limits of a Containerfile, in bytes.
const maxContainerfile = 64 << 10

// instructions of a Containerfile, and whether they need an argument.
var instructions = map[string]bool{"FROM": true, "RUN": true, "CMD": true, "LABEL": true, "EXPOSE": true, "ENV": true, "ADD": true, "COPY": true, "ENTRYPOINT": true,
	"VOLUME": true, "USER": true, "WORKDIR": true, "ARG": true, "ONBUILD": true, "STOPSIGNAL": true, "HEALTHCHECK": true, "SHELL": true, "MAINTAINER": true}

// line is one logical line.
type line struct {
	number    int
	word, arg string
}

var heredoc = regexp.MustCompile(`<<-?\s*["']?([A-Za-z_][A-Za-z0-9_]*)["']?`)

// lines splits a text into logical lines. It joins continuations, and skips comments and the
// bodies of heredocs.
func lines(text string) []line {
	var out []line
	all := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i := 0; i < len(all); i++ {
		s := strings.TrimSpace(all[i])
		if s == "" || strings.HasPrefix(s, "#") {
			continue
		}
		l := line{number: i + 1}
		for strings.HasSuffix(s, "\\") && i+1 < len(all) {
			i++
			next := strings.TrimSpace(all[i])
			if strings.HasPrefix(next, "#") {
				next = "\\"
			}
			s = strings.TrimSpace(strings.TrimSuffix(s, "\\")) + " " + next
		}
		l.word, l.arg, _ = strings.Cut(s, " ")
		l.word, l.arg = strings.ToUpper(l.word), strings.TrimSpace(strings.TrimSuffix(l.arg, "\\"))
		if l.word == "RUN" || l.word == "COPY" || l.word == "ADD" {
			i = skipHeredocs(all, i, l.arg)
		}
		out = append(out, l)
	}
	return out
}

// skipHeredocs returns the last line of the heredocs that an argument opens.
func skipHeredocs(all []string, i int, arg string) int {
	for _, m := range heredoc.FindAllStringSubmatch(arg, -1) {
		for i++; i < len(all) && strings.TrimSpace(all[i]) != m[1]; i++ {
			continue
		}
	}
	return min(i, len(all)-1)
}

// ContainerfileCheck is the result of CheckContainerfile.
type ContainerfileCheck struct {
	// Problems, each a sentence; with one, refit does not build.
	Problems []string
	// From are the base images of its stages, without the generated stage.
	From []string
}

// CheckContainerfile finds mistakes in a Containerfile before a build starts.
func CheckContainerfile(text string) ContainerfileCheck {
	var c ContainerfileCheck
	if len(text) > maxContainerfile {
		c.Problems = append(c.Problems, fmt.Sprintf("the Containerfile has %d bytes, at most %d go", len(text), maxContainerfile))
		return c
	}
	stages := map[string]bool{ConfigStage: true} // those that derive from the generated one
	all := map[string]bool{ConfigStage: true}
	last, started := false, false
	for _, l := range lines(text) {
		if why := l.problem(started); why != "" {
			c.Problems = append(c.Problems, fmt.Sprintf("line %d: %s", l.number, why))
			continue
		}
		if l.word == "FROM" {
			started, last = true, c.addStage(l, stages, all)
		}
	}
	switch {
	case !started:
		c.Problems = append(c.Problems, "it has no FROM; begin with FROM "+ConfigStage+" AS final")
	case !last && len(c.Problems) == 0:
		c.Problems = append(c.Problems, "its last stage does not come from "+ConfigStage+": the pool's configuration would not be in the image; write FROM "+ConfigStage+" AS final")
	}
	return c
}

// problem returns the mistake in a single line, "" for none. started: a FROM came before it.
func (l line) problem(started bool) string {
	needs, known := instructions[l.word]
	switch {
	case !known:
		return fmt.Sprintf("there is no instruction %.40q", l.word)
	case needs && l.arg == "":
		return l.word + " needs an argument"
	case !started && l.word != "FROM" && l.word != "ARG":
		return l.word + " comes before the first FROM"
	}
	return ""
}

// addStage records a stage and reports whether it derives from the generated one.
func (c *ContainerfileCheck) addStage(l line, stages, all map[string]bool) bool {
	var words []string
	for _, w := range strings.Fields(l.arg) {
		if !strings.HasPrefix(w, "--") {
			words = append(words, w)
		}
	}
	if len(words) != 1 && (len(words) != 3 || !strings.EqualFold(words[1], "AS")) {
		c.Problems = append(c.Problems, fmt.Sprintf("line %d: FROM takes an image, and AS with a name", l.number))
		return false
	}
	base := words[0]
	ours := stages[strings.ToLower(base)]
	if !all[strings.ToLower(base)] && base != "scratch" {
		c.From = append(c.From, base)
	}
	if len(words) == 3 {
		name := strings.ToLower(words[2])
		if name == ConfigStage {
			c.Problems = append(c.Problems, fmt.Sprintf("line %d: stage %s is refit's", l.number, ConfigStage))
		}
		all[name] = true
		if ours {
			stages[name] = true
		}
	}
	return ours
}

// RenderContainerfile returns the whole Containerfile: the generated stage from the image with
// the configuration, packages, and the user's text.
func RenderContainerfile(config string, packages []string, text string) string {
	var b strings.Builder
	b.WriteString("FROM " + config + " AS " + ConfigStage + "\n")
	if len(packages) > 0 {
		b.WriteString(installPackages(packages))
	}
	if text != "" {
		b.WriteString("\n" + strings.TrimRight(text, "\n") + "\n")
	}
	return b.String() + listPackages
}

// listPackages writes the image's packages to a file, as lines of name and version. A base
// without a known package manager has an empty list, which is no failure.
const listPackages = "RUN { if command -v rpm >/dev/null; then rpm -qa --qf '%{NAME} %{VERSION}-%{RELEASE}\\n'; \\\n" +
	"  elif command -v dpkg-query >/dev/null; then dpkg-query -W -f '${Package} ${Version}\\n'; \\\n" +
	"  elif command -v apk >/dev/null; then awk -F: '/^P:/{p=$2} /^V:/{print p, $2}' /lib/apk/db/installed; fi; } > /run/refit-out/packages 2>/dev/null || true\n"

// installPackages returns a command for the package managers that refit supports.
func installPackages(packages []string) string {
	list := strings.Join(packages, " ")
	return "RUN set -e; \\\n" +
		"  if command -v dnf >/dev/null; then dnf -y install " + list + "; dnf clean all; rpm -qa | sort > /usr/share/refit-packages; \\\n" +
		"  elif command -v apt-get >/dev/null; then apt-get update; DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends " + list +
		"; rm -rf /var/lib/apt/lists/*; dpkg-query -W | sort > /usr/share/refit-packages; \\\n" +
		"  elif command -v zypper >/dev/null; then zypper -n install " + list + "; zypper clean -a; rpm -qa | sort > /usr/share/refit-packages; \\\n" +
		"  else echo 'refit: the base has none of dnf, apt-get and zypper to install packages with' >&2; exit 1; fi\n"
}
