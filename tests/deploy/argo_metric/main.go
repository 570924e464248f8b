// Argo Rollouts' own code, without a cluster: a run is made of a template, checked, filled in, and measured once.
//
// Reads {"template": AnalysisTemplate, "runs": {name: [argument, …]}}, writes {name: {phase, value, message}}.
package main

import (
	"encoding/json"
	"io"
	"log"
	"os"

	"github.com/argoproj/argo-rollouts/metricproviders/webmetric"
	"github.com/argoproj/argo-rollouts/pkg/apis/rollouts/v1alpha1"
	"github.com/argoproj/argo-rollouts/utils/analysis"
	"github.com/sirupsen/logrus"
)

type question struct {
	Template v1alpha1.AnalysisTemplate      `json:"template"`
	Runs     map[string][]v1alpha1.Argument `json:"runs"`
}

type told struct {
	Phase   string `json:"phase"`
	Value   string `json:"value"`
	Message string `json:"message"`
}

func main() {
	var asked question
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		log.Fatal(err)
	}
	found := map[string]told{}
	for name, arguments := range asked.Runs {
		measured, err := measure(&asked.Template, arguments)
		if err != nil {
			measured = told{Phase: "Invalid", Message: err.Error()}
		}
		found[name] = measured
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		log.Fatal(err)
	}
}

func measure(template *v1alpha1.AnalysisTemplate, arguments []v1alpha1.Argument) (told, error) {
	run, metric, err := filledIn(template, arguments)
	if err != nil {
		return told{}, err
	}
	client, err := webmetric.NewWebMetricHttpClient(*metric)
	if err != nil {
		return told{}, err
	}
	path, err := webmetric.NewWebMetricJsonParser(*metric)
	if err != nil {
		return told{}, err
	}
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	said := webmetric.NewWebMetricProvider(*logrus.NewEntry(quiet), client, path).Run(run, *metric)
	return told{Phase: string(said.Phase), Value: said.Value, Message: said.Message}, nil
}

func filledIn(template *v1alpha1.AnalysisTemplate, arguments []v1alpha1.Argument) (*v1alpha1.AnalysisRun, *v1alpha1.Metric, error) {
	templates := []*v1alpha1.AnalysisTemplate{template}
	run, err := analysis.NewAnalysisRunFromTemplates(templates, nil, arguments, nil, nil, nil, nil, "run", "", "default")
	if err != nil {
		return nil, nil, err
	}
	if err := analysis.ResolveArgs(run.Spec.Args); err != nil {
		return nil, nil, err
	}
	metric, err := analysis.ResolveMetricArgs(run.Spec.Metrics[0], run.Spec.Args)
	if err != nil {
		return nil, nil, err
	}
	return run, metric, analysis.ValidateMetrics([]v1alpha1.Metric{*metric})
}
