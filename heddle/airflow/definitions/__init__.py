"""The DAGs, a module each: what a DAG file calls. They only wire."""
