package html

import (
	"bytes"
	"fmt"
	"html/template"
)

// Page is a page without scripts that looks like the report.
type Page struct {
	// Name and About are its title.
	Name, About string
	// Body is a template of html/template that gets Data. Its function class turns the state of a scenario into
	// a class of the style sheet.
	Body string
	Data any
}

// Render returns the page as one self-contained file. An error is a mistake in the template.
func (p Page) Render() ([]byte, error) {
	style, err := assets.ReadFile("assets/style.css")
	if err != nil {
		return nil, fmt.Errorf("render HTML: %w", err)
	}
	t, err := template.New("plain.tmpl").Funcs(template.FuncMap{
		"class": class,
		"style": func() template.CSS { return template.CSS(style) },
	}).ParseFS(assets, "assets/plain.tmpl")
	if err == nil {
		_, err = t.New("body").Parse(p.Body)
	}
	var out bytes.Buffer
	if err == nil {
		err = t.Execute(&out, p)
	}
	if err != nil {
		return nil, fmt.Errorf("render HTML: %w", err)
	}
	return out.Bytes(), nil
}
