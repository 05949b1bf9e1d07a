"""Several methods on one federation.

``contenders``  recipes brought onto the first one's federation
``comparison``  their runs over seeds, paired
``scores``      the figures one run is judged by
``estimates``   a mean over seeds and how far it can be trusted
``ranking``     a row each, differences from the first one, and which is best for real
"""
