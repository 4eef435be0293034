raise ImportError('No module named sitecustomize')
