"""Several methods on one federation.

``contenders``  recipes brought onto the first one's federation
``comparison``  their runs over seeds, paired
``scores``      the columns of a comparison, and which figure of a run stands in each
``estimates``   a mean over seeds and how far it can be trusted
``ranking``     a row each, differences from the first one, and which is best for real
"""
