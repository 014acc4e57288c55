// Renders the chart as `helm template` does, for machines without helm: Go's text/template, the
// functions of sprig, and those that helm adds. check.py runs it.
//
// Usage: render CHART VALUES-AS-JSON
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"github.com/ghodss/yaml"
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func readYaml(path string) map[string]interface{} {
	text, err := os.ReadFile(path)
	fail(err)
	value := map[string]interface{}{}
	fail(yaml.Unmarshal(text, &value))
	return value
}

func merge(base, over map[string]interface{}) {
	for key, value := range over {
		inner, isMap := value.(map[string]interface{})
		old, wasMap := base[key].(map[string]interface{})
		if isMap && wasMap {
			merge(old, inner)
		} else {
			base[key] = value
		}
	}
}

func main() {
	chart := os.Args[1]
	values := readYaml(filepath.Join(chart, "values.yaml"))
	over := map[string]interface{}{}
	fail(json.Unmarshal([]byte(os.Args[2]), &over))
	merge(values, over)
	about := readYaml(filepath.Join(chart, "Chart.yaml"))
	root := map[string]interface{}{
		"Values":  values,
		"Release": map[string]interface{}{"Name": "jobs", "Namespace": "default", "Service": "Helm"},
		"Chart": map[string]interface{}{
			"Name": about["name"], "Version": about["version"], "AppVersion": about["appVersion"],
		},
	}
	all := template.New("chart").Option("missingkey=error")
	functions := sprig.TxtFuncMap()
	functions["toYaml"] = func(value interface{}) string {
		text, err := yaml.Marshal(value)
		fail(err)
		return strings.TrimSuffix(string(text), "\n")
	}
	functions["include"] = func(name string, data interface{}) (string, error) {
		var text bytes.Buffer
		err := all.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	functions["required"] = func(message string, value interface{}) (interface{}, error) {
		if value == nil || value == "" {
			return nil, errors.New(message)
		}
		return value, nil
	}
	all.Funcs(functions)
	paths, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	fail(err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		fail(err)
		_, err = all.New(filepath.Base(path)).Parse(string(text))
		fail(err)
	}
	for _, path := range paths {
		name := filepath.Base(path)
		if strings.HasPrefix(name, "_") {
			continue
		}
		var text bytes.Buffer
		fail(all.ExecuteTemplate(&text, name, root))
		fmt.Printf("--- # %s\n%s\n", name, text.String())
	}
}
